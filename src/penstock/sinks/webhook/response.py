"""The answer of an endpoint as it arrives."""

from __future__ import annotations

import socket
from http.client import HTTPException

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

REFUSED = "penstock-refused"

HEAD_BYTES = 1 << 18  # the most bytes of an answer before its status and headers are complete
_PIECE = 1 << 16


class ResponseParser:
    """Status, headers by lower-case name, and the beginning of the body.

    `is_whole`: no byte of the answer is left on the connection, which can be used again.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body, self.is_whole = b"", False
        self._sock, self._parser, self._is_headed, self._is_over = sock, HttpResponseParser(self), False, False
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_transfer_encoding=True,
            lenient_data_after_close=True,
            lenient_optional_cr_before_lf=True,
        )

    def begin(self) -> None:
        """Read up to the body, past interim answers. Raises OSError, HttpParserError, HTTPException."""
        taken = 0
        while not self._is_headed:
            if taken > HEAD_BYTES:
                raise HTTPException(f"the head of the answer is longer than {HEAD_BYTES} bytes")
            data = self._sock.recv(_PIECE)
            if not data:
                broken = HTTPException("the connection was closed within the answer")
                raise broken if taken else ConnectionResetError("the connection was closed without an answer")
            taken += len(data)
            self._feed(data)

    def finish(self, most: int) -> None:
        """Read the body, at most `most` bytes. Raises OSError."""
        while not self._is_over and len(self.body) < most and (data := self._sock.recv(_PIECE)):
            self._feed(data)

    def close(self) -> None:
        """Drop the parser: it and this object refer to each other."""
        del self._parser

    def _feed(self, data: bytes) -> None:
        """Parse; a malformed body raises nothing, but the connection cannot be used again."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            if not self._is_headed:
                raise
            self._is_over, self.is_whole = True, False

    # Called by the parser.

    def on_message_begin(self) -> None:
        """The beginning of an answer; a second one belongs to no request."""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Of several with the same name the first counts, except for Penstock-Refused, which is a list."""
        if not self._is_headed:
            called, said = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            first = self.headers.setdefault(called, said)
            if called == REFUSED and first is not said:
                self.headers[called] = f"{first}, {said}"

    def on_headers_complete(self) -> None:
        """The end of the headers."""
        if self._is_headed:
            return
        self.status = self._parser.get_status_code()
        self._is_headed = self.status >= 200 or self.status == 101
        if not self._is_headed:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if not self._is_over:
            self.body += data

    def on_message_complete(self) -> None:
        """The end of an answer."""
        self.is_whole = self._is_headed and not self._is_over and self._parser.should_keep_alive()
        self._is_over = self._is_headed
