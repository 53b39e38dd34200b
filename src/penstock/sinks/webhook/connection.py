"""One connection to an endpoint: opened when needed, kept, and closed when its state is in doubt."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPException

from httptools import HttpParserError
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from penstock.delivery.transport import Deferred, Failed, Outcome, Refused
from penstock.failpoint import reach
from penstock.sinks.webhook.answer import SHOWN_CHARACTERS, outcome
from penstock.sinks.webhook.endpoint import Endpoint
from penstock.sinks.webhook.response import ResponseParser
from penstock.sinks.webhook.tls import explained

_READ_BYTES = 1 << 16  # the most of an answer that is read; the connection of a longer one is closed
_FAILURES = (OSError, HTTPError, HTTPException, HttpParserError)


class Connection:
    """Sends one request at a time; `timeout` applies to a request as a whole. `http` makes the connection of urllib3."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeout: float,
        http: Callable[..., HTTPConnection] = HTTPConnection,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._timeout, self._redact = timeout, redact
        self._opening = f"POST {endpoint.target} HTTP/1.1\r\nHost: {endpoint.authority}\r\nAccept-Encoding: identity\r\n"
        self._http = http(endpoint.host, endpoint.port, timeout=timeout)
        self._due_at: float | None = None
        self._is_kept = self._is_sent = False
        self._failure: Failed | None = None

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request; the caller then calls `answer`."""
        self._is_kept, self._is_sent, self._failure = self._http.is_connected, False, None
        if not self._is_kept:
            self._http.close()
        self._due_at = time.monotonic() + self._timeout
        try:
            sock, self._is_sent = self._connected(), True
            with suppress(BrokenPipeError):  # an endpoint may answer before it has read everything
                sock.sendall(self._head(len(body), headers) + body)
        except _FAILURES as error:
            self._failure = self._failed(error, self._due_at)

    def answer(self) -> Outcome:
        """Wait for the answer to the request that was sent, or its failure."""
        assert self._due_at
        try:
            if self._failure:
                return self._failure
            response = self._response()
        except _FAILURES as error:
            return self._failed(error, self._due_at)
        finally:
            self._due_at = None
        reach("sink.sent")
        return outcome(*response, self._redact)

    def _failed(self, error: Exception, due_at: float) -> Failed:
        """The outcome without an answer. A kept connection that closes as the request is sent is no sign of trouble."""
        self._http.close()
        is_late = time.monotonic() >= due_at
        is_stale = self._is_kept and not is_late and isinstance(error, ConnectionError)
        reason = self._late() if is_late else self._reason(error)
        if is_stale or not self._is_sent:
            return Deferred(reason, is_certain=not self._is_sent, is_free=is_stale)
        return Refused(reason)

    def _connected(self) -> socket.socket:
        if not self._http.sock:
            self._http.connect()
            wait_in_kernel(self._http.sock, self._timeout)
        return self._http.sock

    def _response(self) -> tuple[int, Mapping[str, str], str]:
        assert self._http.sock
        with closing(ResponseParser(self._http.sock)) as response:
            response.begin()
            shown = self._finish(response)
            return response.status, response.headers, shown

    def _head(self, length: int, headers: Mapping[str, str]) -> bytes:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self._opening}Content-Length: {length}\r\n{fields}\r\n".encode("ascii")

    def _finish(self, response: ResponseParser) -> str:
        """Read the body, so that the connection can be kept; if that fails, the status still counts."""
        try:
            response.finish(_READ_BYTES)
        except OSError:
            self._http.close()
            return ""
        if not response.is_whole:
            self._http.close()
        text = self._redact("".join(filter(str.isprintable, response.body.decode(errors="replace"))))[:SHOWN_CHARACTERS]
        return f": {text}" if text else ""

    def _reason(self, error: Exception) -> str:
        cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__ or error
        if isinstance(cause, HttpParserError):
            return f"the answer is not HTTP: {cause}"
        if isinstance(cause, TimeoutError):
            return self._late()
        if isinstance(cause, ssl.SSLError) and (said := explained(cause)):
            return said
        return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__

    def _late(self) -> str:
        return f"no answer within {self._timeout:g} s"

    def sever_if_late(self) -> None:
        """Called by another thread: shut down a request that exceeds its timeout, even if bytes of the answer still arrive."""
        due_at = self._due_at  # read once: the thread with the answer may clear it at any moment
        if due_at is not None and time.monotonic() > due_at and (sock := self._http.sock):
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def wait_in_kernel(sock: socket.socket, timeout: float) -> None:
    """Replace Python's timeout by the kernel's: with the former, each call releases the interpreter lock twice instead of once."""
    if not isinstance(sock, ssl.SSLSocket):
        length = struct.pack("ll", *divmod(max(1, round(timeout * 1e6)), 1_000_000))
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, length)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, length)
