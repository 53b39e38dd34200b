"""Signatures as Standard Webhooks has them, so that receivers know who wrote a request and when."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from dataclasses import dataclass, field

from penstock.settings import settings

_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64


@settings
class Signing:
    """One secret, or several while receivers change from an old one to a new one: each signs every request."""

    secret: str | list[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.secret is not None and not self.secrets:
            raise ValueError("signing.secret is empty: give a secret, or remove the key")
        for secret in self.secrets:
            _key(secret)

    @property
    def secrets(self) -> list[str]:
        """All of them."""
        return [self.secret] if isinstance(self.secret, str) else self.secret or []

    def signer(self) -> Signer | None:
        """What signs, if anything is to be signed."""
        return Signer([_key(secret) for secret in self.secrets]) if self.secrets else None


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests with all keys."""

    keys: list[bytes] = field(repr=False)

    def headers(self, name: str, body: bytes) -> dict[str, str]:
        """What says that this body, called so, was sent now by one who knows the keys."""
        now = str(int(time.time()))
        # The full stop separates the parts of what is signed.
        name = name.replace(".", "%2E")
        signed = f"{name}.{now}.".encode() + body
        signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self.keys)
        return {"webhook-id": name, "webhook-timestamp": now, "webhook-signature": " ".join(f"v1,{one}" for one in signatures)}


def _key(secret: str) -> bytes:
    """The bytes of a secret. Raises ValueError, which does not quote it."""
    if not secret.startswith(_PREFIX):
        raise ValueError(f"signing.secret does not begin with {_PREFIX}: write {_PREFIX} and 24 to 64 random bytes in base64")
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"signing.secret is not base64 behind {_PREFIX}: was it cut off, or a character lost?") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"signing.secret has {len(key)} bytes: it must have {_SHORTEST} to {_LONGEST}")
    return key
