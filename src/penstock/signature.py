"""Signatures of requests by the specification Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

PREFIX = "whsec_"
TOLERANCE = 300
"""The permitted seconds between a signature and its check: an old request may be a replay."""

ACTED_ON = ("penstock-pipeline", "penstock-lane", "penstock-incarnation", "penstock-epoch", "penstock-redriven")
"""The headers that a receiver acts on; the id of a signature ends with their digest."""

_SHORTEST, _LONGEST = 24, 64
_DIGITS = 32


def key(secret: str) -> bytes:
    """The bytes of a secret. Raises ValueError without the secret in its text."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"does not begin with {PREFIX}: write {PREFIX} and 24 to 64 random bytes in base64")
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"is not base64 after {PREFIX}: check that it is complete") from None
    if not _SHORTEST <= len(found) <= _LONGEST:
        raise ValueError(f"has {len(found)} bytes: it must have {_SHORTEST} to {_LONGEST}")
    return found


def signed(keys: Sequence[bytes], name: str, body: bytes, now: int) -> dict[str, str]:
    """The headers that sign a body with an id and a time."""
    name = name.replace(".", "%2E")  # the full stop separates the parts of the signed content
    signatures = " ".join(_signature(one, name, str(now), body) for one in keys)
    return {"webhook-id": name, "webhook-timestamp": str(now), "webhook-signature": signatures}


def named(key: str, headers: Mapping[str, str]) -> str:
    """The id of a request: its key and a digest of its headers."""
    return f"{key}-{_digest({name.lower(): value for name, value in headers.items()})}"


def covers(headers: Mapping[str, str]) -> bool:
    """Whether these headers, with names in lower case, were signed."""
    return hmac.compare_digest(headers.get("webhook-id", "")[-_DIGITS:].encode(), _digest(headers).encode())


def _digest(headers: Mapping[str, str]) -> str:
    lines = "".join(f"{name}:{headers.get(name, '')}\n" for name in ACTED_ON)
    return hashlib.sha256(lines.encode()).hexdigest()[:_DIGITS]


def complaint(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """The defect of a signature; None if it is valid. Names of headers are in lower case."""
    name, at, given = (headers.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    if not (name and at and given):
        return "the request is not signed"
    if not (at.isascii() and at.isdecimal() and len(at) <= 12):
        return "the time of the signature cannot be read"
    if abs(now - int(at)) > TOLERANCE:
        return f"the signature is from another time: {now - int(at):.0f} s ago"
    expected = [_signature(one, name, at, body) for one in keys]
    if not any(hmac.compare_digest(one.encode(), other.encode()) for one in given.split(" ") for other in expected):
        return "the signature does not match: another secret, or another body"
    return None


def _signature(one: bytes, name: str, at: str, body: bytes) -> str:
    content = f"{name}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(one, content, hashlib.sha256)).decode()
