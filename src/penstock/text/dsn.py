"""The address of a database without its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

_IN_URL = re.compile(r"(?<=://)(?P<user>[^:@/?\s]*):(?P<secret>[^/?\s]*)(?=@)")
_NAMED = re.compile(
    r"(?P<name>\b(?:password|sslpassword|passfile|sslkey|oauth_client_secret)\s*=\s*)(?P<secret>'(?:[^'\\]|\\.)*'|[^\s&]+)",
    re.IGNORECASE,
)


def shown(text: str) -> str:
    """A DSN, or a text with DSNs, without passwords."""
    return _NAMED.sub(r"\g<name>***", _IN_URL.sub(r"\g<user>:***", text))


def scrubbed(text: str, dsn: str) -> str:
    """The message of a driver on one line, without the secrets of this DSN."""
    for secret in sorted(_secrets(dsn), key=len, reverse=True):
        text = text.replace(secret, "***")
    return " ".join(shown(text).split())


def _secrets(dsn: str) -> Iterator[str]:
    for found in (*_IN_URL.finditer(dsn), *_NAMED.finditer(dsn)):
        written = found["secret"].strip("'")
        yield from {written, unquote(written)} - {""}
