"""What came to a receiver, and the file it is written to: a line of JSON for each request.

A body that is JSON stands there byte for byte: a receiver is not to be what takes the time.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

_GZIP = b"\x1f\x8b"  # how such bytes begin, and JSON never
_SIZE, _BODY = b'{"size":', b',"body":'


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; the names of headers are in lower case."""

    at: float
    connection: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_taken: bool = False
    status: int | None = None
    refused: Collection[int] = ()  # of one that is taken

    @property
    def content(self) -> bytes:
        """The body, decompressed."""
        return gzip.decompress(self.body) if self.body.startswith(_GZIP) else self.body

    def changes(self) -> list[dict[str, Any]]:
        """The changes inside, as their format has them, but for those refused; in format rqlite, the groups."""
        content = orjson.loads(self.content)
        if isinstance(content, list):
            return content
        changes: list[dict[str, Any]] = content["payload"] if "payload" in content else content["changes"]
        return [change for change in changes if change["position"] not in self.refused] if self.refused else changes

    def positions(self) -> list[int]:
        """The positions of the changes inside."""
        return [_position(change) for change in self.changes()]


def _position(change: Mapping[str, Any]) -> int:
    """Where a change stands, in whatever format."""
    if "specversion" in change:
        change = change["data"]
    elif "source" in change:
        change = change["source"]
    position: int = change["index"] if "index" in change else change["position"]
    return position


def recorded(out: Path) -> list[Request]:
    """All requests that a receiver has written."""
    return Record(out).requests()


class Record:
    """The file of a receiver; each line is read once, however often the requests are looked at."""

    def __init__(self, out: Path) -> None:
        self._out, self._read, self._upto, self._lock = out, list[Request](), 0, Lock()

    def requests(self) -> list[Request]:
        """All requests so far; a line that is not complete yet is left out."""
        with self._lock:
            if self._out.exists():
                with self._out.open("rb") as file:
                    file.seek(self._upto)
                    whole, _, _ = file.read().rpartition(b"\n")
                if whole:
                    self._upto += len(whole) + 1
                    self._read += map(_of_line, whole.split(b"\n"))
            return list(self._read)


def _of_line(line: bytes) -> Request:
    size = int(line[len(_SIZE) : line.index(b",")])
    body, facts = line[-size - 1 : -1], orjson.loads(line[: -size - len(_BODY) - 1] + b"}")
    del facts["size"]
    return Request(**facts, body=orjson.loads(body).encode() if body.startswith(b'"') else body)


def line_of(request: Request, content: bytes) -> tuple[bytes, ...]:
    """A request as JSON, in pieces. Its body, if that is no JSON of one line, as a string."""
    is_json = content[:1] in (b"{", b"[") and b"\n" not in content
    body = content if is_json else orjson.dumps(content.decode())
    facts = {name: getattr(request, name) for name in Request.__slots__ if name != "body"}
    return orjson.dumps({"size": len(body), **facts})[:-1], _BODY, body, b"}\n"
