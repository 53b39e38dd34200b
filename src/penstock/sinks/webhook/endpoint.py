"""The URL of a webhook in parts: its credentials are sent in a header and shown nowhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from penstock.sinks.webhook.auth import basic

_PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The destination of requests. `shown` has no user, password and query."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    authorization: str | None = field(repr=False)
    shown: str

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = self.host.partition("%")[0]  # the zone of an address has a meaning on this machine only
        host = f"[{host}]" if ":" in host else host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Endpoint:
    """The endpoint of a URL. Raises ValueError, which never quotes the URL: it may contain a password."""
    if not _VISIBLE.fullmatch(url):
        raise ValueError("url is empty or has characters that a URL cannot hold: percent-encode them")
    parts, port = _split(url)
    if parts.scheme not in _PORTS:
        raise ValueError("url must begin with http:// or https://")
    if not parts.hostname:
        raise ValueError("url names no host: write it like https://example.org/hooks/orders")
    if not _is_host(parts.hostname):
        raise ValueError("url has an impossible host: its parts between dots are empty or longer than 63 characters")
    if parts.fragment:
        raise ValueError("url has a fragment (#...), which is never sent: remove it")
    return Endpoint(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        authorization=_basic(parts),
        shown=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
    )


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        what = "url has a host or a port that cannot be read: a port is a number up to 65535"
        raise ValueError(f"{what}; in a password, percent-encode / ? # @") from None
    if port == 0:
        raise ValueError("url has port 0, on which no server can listen")
    return parts, port


def _is_host(host: str) -> bool:
    """Whether a resolver accepts the name; Python's check is the same."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def _basic(parts: SplitResult) -> str | None:
    if not parts.username and not parts.password:
        return None
    user, password = (unquote_to_bytes(part or "") for part in (parts.username, parts.password))
    return basic(user, password)
