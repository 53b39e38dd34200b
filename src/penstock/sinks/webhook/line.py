"""One connection to an endpoint: opened when needed, kept, and given up when anything about it is in doubt."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

from httptools import HttpParserError
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from penstock.holding import Place
from penstock.sinks.webhook.endpoint import Endpoint
from penstock.sinks.webhook.reply import REFUSED, Reply
from penstock.sinks.webhook.tls import explained

_READ_BYTES = 1 << 16  # what an answer may hold before its connection is given up rather than read to the end
_SHOWN_CHARACTERS = 120
_FAILURES = (OSError, HTTPError, HTTPException, HttpParserError)
_TOO_LARGE = 413
_FINAL = (400, _TOO_LARGE, 415, 422)
_NOT_NOW = (429, 503)
_STRANGER = (401, 403)
_CREDENTIALS = " (check the credentials: sink.auth, headers, signing or url)"
_REDIRECTS = (301, 302, 303, 307, 308)


class Security(NamedTuple):
    """What the lines to an endpoint trust, and the name it is asked for if not the host of the url."""

    context: ssl.SSLContext
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request.

    `status` is None if no answer came. `is_stale`: the endpoint closed a kept connection just as the request was sent on it,
    which is no sign of trouble. `is_unsent`: nobody was reached. `named`: the places of changes that it says it is about.
    `is_doubtful`: the far side seemed to be in trouble when the request was sent. `is_void`: though a 2xx, it has taken nothing,
    if it names all, or nobody knows what.
    """

    status: int | None
    reason: str
    retry_after: float | None = None
    is_stale: bool = False
    is_unsent: bool = False
    named: frozenset[Place] = frozenset()
    is_doubtful: bool = False
    is_void: bool = False

    @property
    def is_taken(self) -> bool:
        """Whether the far side has the changes, but for those it names: any 2xx."""
        return self.status is not None and 200 <= self.status < 300 and not self.is_void

    @property
    def is_final(self) -> bool:
        """Whether it says that these changes will never be taken as they are."""
        return self.status in _FINAL or (self.is_void and bool(self.named))

    @property
    def is_too_large(self) -> bool:
        """Whether it says that the request has too many bytes."""
        return self.status == _TOO_LARGE

    @property
    def is_certain(self) -> bool:
        """Whether it is known that nothing was taken: it was not sent, or the endpoint says that the request itself is at fault."""
        return self.is_unsent or (self.status is not None and 400 <= self.status < 500)

    @property
    def is_refusal(self) -> bool:
        """Whether it may be about the changes: nobody was reached, or asked for time, if not."""
        return not self.is_unsent and self.status not in _NOT_NOW


class Line:
    """Sends one request at a time; `timeout` holds for a request as a whole. `seconds`: what the last one took."""

    def __init__(self, endpoint: Endpoint, timeout: float, security: Security | None, hide: Callable[[str], str] = str) -> None:
        self.shown, self._timeout, self._hide = endpoint.shown, timeout, hide
        self._opening = f"POST {endpoint.target} HTTP/1.1\r\nHost: {endpoint.authority}\r\nAccept-Encoding: identity\r\n"
        self._connection = _connection(endpoint, timeout, security)
        self._due_at: float | None = None
        self.seconds = 0.0
        self._is_kept = self._is_sent = False
        self._failure: Answer | None = None

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request and wait for its answer."""
        self.send(body, headers)
        return self.answer()

    def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request; `answer` is to be called next."""
        self._is_kept, self._is_sent, self._failure = self._connection.is_connected, False, None
        if not self._is_kept:
            self._connection.close()
        self._due_at = time.monotonic() + self._timeout
        try:
            sock, self._is_sent = self._connected(), True
            with suppress(BrokenPipeError):  # an endpoint may refuse before it has read everything, and its answer is waiting
                sock.sendall(self._head(len(body), headers) + body)
        except _FAILURES as error:
            self._failure = self._failed(error, self._due_at)

    def answer(self) -> Answer:
        """What has come of the request that was sent, as soon as that is known."""
        assert self._due_at
        try:
            return self._failure or self._heard()
        except _FAILURES as error:
            return self._failed(error, self._due_at)
        finally:
            self.seconds = time.monotonic() - self._due_at + self._timeout
            self._due_at = None

    def _failed(self, error: Exception, due_at: float) -> Answer:
        self._connection.close()
        is_late = time.monotonic() >= due_at
        is_stale = self._is_kept and not is_late and isinstance(error, ConnectionError)
        reason = self._late() if is_late else self._reason(error)
        return Answer(None, reason, is_stale=is_stale, is_unsent=not self._is_sent)

    def _connected(self) -> socket.socket:
        if not self._connection.sock:
            self._connection.connect()
            wait_in_kernel(self._connection.sock, self._timeout)
        return self._connection.sock

    def _heard(self) -> Answer:
        assert self._connection.sock
        with closing(Reply(self._connection.sock)) as reply:
            reply.begin()
            shown = self._finish(reply)
            if reply.status in _REDIRECTS:
                shown = _redirection(reply.headers.get("location"))
            hint = _CREDENTIALS if reply.status in _STRANGER else ""
            asked, refused = reply.headers.get("retry-after"), reply.headers.get(REFUSED, "")
            answer = Answer(reply.status, f"status {reply.status}{hint}{shown}", seconds_asked(asked))
            return _naming(answer, refused) if refused else answer

    def _head(self, length: int, headers: Mapping[str, str]) -> bytes:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self._opening}Content-Length: {length}\r\n{fields}\r\n".encode("ascii")

    def _finish(self, reply: Reply) -> str:
        """Read the answer's body, so that the connection can be kept; the status counts also where that fails."""
        try:
            reply.finish(_READ_BYTES)
        except OSError:
            self._connection.close()
            return ""
        if not reply.is_whole:
            self._connection.close()
        text = self._hide("".join(filter(str.isprintable, reply.body.decode(errors="replace"))))[:_SHOWN_CHARACTERS]
        return f": {text}" if text else ""

    def _reason(self, error: Exception) -> str:
        cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__ or error
        if isinstance(cause, HttpParserError):
            return f"the answer is no HTTP: {cause}"
        if isinstance(cause, TimeoutError):
            return self._late()
        if isinstance(cause, ssl.SSLError) and (said := explained(cause)):
            return said
        return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__

    def _late(self) -> str:
        return f"no answer within {self._timeout:g} s"

    def sever_if_late(self) -> None:
        """Called by another thread: end a request that is past its time, though bytes of an answer may still trickle in."""
        due_at = self._due_at  # looked at once: the answer may come, and clear it, at any moment
        if due_at is not None and time.monotonic() > due_at and (sock := self._connection.sock):
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()


def _connection(endpoint: Endpoint, timeout: float, security: Security | None) -> HTTPConnection:
    if security is None:
        return HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
    return HTTPSConnection(
        endpoint.host, endpoint.port, timeout=timeout, ssl_context=security.context, server_hostname=security.server_name
    )


def wait_in_kernel(sock: socket.socket, timeout: float) -> None:
    """With a timeout, Python asks before each call whether it would wait, and gives the interpreter away twice instead of once."""
    if not isinstance(sock, ssl.SSLSocket):
        length = struct.pack("ll", *divmod(max(1, round(timeout * 1e6)), 1_000_000))
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, length)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, length)


def _redirection(location: str | None) -> str:
    """Where a redirect leads: its host alone, since the rest may hold credentials."""
    try:
        host = urlsplit(location or "").hostname
    except ValueError:
        host = None
    where = f"to the host {host[:_SHOWN_CHARACTERS]!a}" if host else "to another path" if location else "to nowhere"
    return f": a redirect {where}, which is not followed; write the final address in url"


def _naming(answer: Answer, refused: str) -> Answer:
    """An answer with what its header Penstock-Refused names. A 2xx of which that cannot be read whole takes nobody knows what."""
    named, unread = places_named(refused)
    if answer.is_taken and unread:
        return void(answer, f"cannot be read at {unread[:_SHOWN_CHARACTERS]!a}")
    return replace(answer, named=named, reason=f"{answer.reason}, named by Penstock-Refused" if answer.is_taken else answer.reason)


def void(answer: Answer, why: str) -> Answer:
    """The same, as one that has taken nothing for certain, and names nothing."""
    return replace(answer, named=frozenset(), is_void=True, reason=f"status {answer.status}, but its Penstock-Refused {why}")


def places_named(refused: str) -> tuple[frozenset[Place], str]:
    """The changes that a Penstock-Refused header names, by position, with an ordinal if they have one; and what else it says."""
    words = [word for word in re.split(r"[\s,]+", refused) if word]
    found = {word: re.fullmatch(r"(\d{1,19})(?:\.(\d{1,19}))?", word, re.ASCII) for word in words}
    named = frozenset((int(one[1]), int(one[2] or 0)) for one in found.values() if one)
    return named, " ".join(word for word, one in found.items() if not one)


def seconds_asked(retry_after: str | None) -> float | None:
    """The wait that a Retry-After header asks for, in seconds or as a date; None if it cannot be read."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
        return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
