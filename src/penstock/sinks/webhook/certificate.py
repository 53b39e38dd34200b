"""The expiry of a certificate. Python's ssl reads it only for the peer, so this module walks through the few fields before it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime

_BLOCK = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_VERSION, _SHORT_YEAR = 0xA0, 0x17  # tags of DER: the optional first field, and UTCTime


def end_of(pem: bytes) -> datetime:
    """The expiry of the first certificate in a PEM file, which is the one that is shown. Raises ValueError if there is none."""
    if not (block := _BLOCK.search(pem)):
        raise ValueError("tls.cert holds no certificate: it must be a PEM file, BEGIN CERTIFICATE and all")
    try:
        return _end(base64.b64decode(block[1]))
    except (IndexError, ValueError):
        raise ValueError("tls.cert holds a certificate that cannot be read: have it issued again") from None


def _end(der: bytes) -> datetime:
    (_, certificate), *_ = _parts(der)
    (_, signed), *_ = _parts(certificate)
    _serial, _algorithm, _issuer, validity, *_ = (content for tag, content in _parts(signed) if tag != _VERSION)
    _, (tag, until) = _parts(validity)
    century = b"" if tag != _SHORT_YEAR else b"19" if until >= b"50" else b"20"
    return datetime.strptime((century + until).decode(), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size & 0x80:
            begin, at = at, at + (size & 0x7F)
            size = int.from_bytes(der[begin:at], "big")
        yield tag, der[at : at + size]
        at += size
