"""The requests of a receiver, and their file: a line of JSON for each.

A body that is JSON is written byte for byte: the receiver must not be the bottleneck.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

_GZIP = b"\x1f\x8b"  # JSON never begins so
_SIZE, _BODY = b'{"size":', b',"body":'


@dataclass(frozen=True, slots=True)
class Request:
    """One request; the names of headers are in lower case."""

    at: float
    connection: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_taken: bool = False
    status: int | None = None
    refused: Collection[int] = ()  # of an accepted request

    @property
    def content(self) -> bytes:
        """The decompressed body."""
        return gzip.decompress(self.body) if self.body.startswith(_GZIP) else self.body

    def changes(self) -> list[dict[str, Any]]:
        """The changes inside, in their format, except the refused ones; in format rqlite, the groups."""
        content = orjson.loads(self.content)
        if isinstance(content, list):
            return content
        changes: list[dict[str, Any]] = content["payload"] if "payload" in content else content["changes"]
        return [change for change in changes if change["position"] not in self.refused] if self.refused else changes

    def positions(self) -> list[int]:
        """The positions of the changes inside."""
        return [_position(change) for change in self.changes()]


def _position(change: Mapping[str, Any]) -> int:
    if "specversion" in change:
        change = change["data"]
    elif "source" in change:
        change = change["source"]
    position: int = change["index"] if "index" in change else change["position"]
    return position


class Record:
    """The file of a receiver; each line is read once."""

    def __init__(self, out: Path) -> None:
        self._out, self._read, self._upto, self._lock = out, list[Request](), 0, Lock()

    def requests(self) -> list[Request]:
        """All requests so far, without an incomplete last line."""
        with self._lock:
            self._read += self.new()
            return list(self._read)

    def new(self) -> list[Request]:
        """The requests since the last call, which are not kept: for one thread."""
        if not self._out.exists():
            return []
        with self._out.open("rb") as file:
            file.seek(self._upto)
            whole, end, _ = file.read().rpartition(b"\n")
        self._upto += len(whole) + len(end)
        return [_of_line(line) for line in whole.split(b"\n")] if end else []


def _of_line(line: bytes) -> Request:
    size = int(line[len(_SIZE) : line.index(b",")])
    body, facts = line[-size - 1 : -1], orjson.loads(line[: -size - len(_BODY) - 1] + b"}")
    del facts["size"]
    return Request(**facts, body=orjson.loads(body).encode() if body.startswith(b'"') else body)


def line_of(request: Request, content: bytes) -> tuple[bytes, ...]:
    """A request as JSON, in pieces. A body that is not JSON of one line becomes a string."""
    is_json = content[:1] in (b"{", b"[") and b"\n" not in content
    body = content if is_json else orjson.dumps(content.decode())
    facts = {name: getattr(request, name) for name in Request.__slots__ if name != "body"}
    return orjson.dumps({"size": len(body), **facts})[:-1], _BODY, body, b"}\n"
