"""What the receiver has written down, whoever sent it: when each request came, and which rows were in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

Arrival = tuple[float, int, float]
"""When a row came, its id, and when its transaction was sent off."""


def arrivals(out: Path, first: int, last: int) -> Iterator[Arrival]:
    """Of the rows with these ids, each the first time that it came."""
    seen: set[int] = set()
    for line in _lines(out):
        request = orjson.loads(line)
        for row in rows(request["body"]):
            if first <= row["id"] <= last and row["id"] not in seen:
                seen.add(row["id"])
                yield request["at"], row["id"], float(row["at"])


def newest(out: Path) -> int:
    """The id in the last request; only the end of the file is read, so that nobody is disturbed."""
    if not (size := out.stat().st_size if out.exists() else 0):
        return 0
    for reach in (1 << 18, 1 << 24, size):
        with out.open("rb") as file:
            file.seek(max(0, size - reach))
            lines = file.read(size).split(b"\n")
        if len(lines) > (1 if reach >= size else 2):  # the first one read may have lost its beginning
            return rows(orjson.loads(lines[-2])["body"])[-1]["id"]
    return 0


def rows(body: Any) -> list[dict[str, Any]]:
    """Ours sends an object with changes; Debezium wraps its envelopes into schemas, unless told not to."""
    changes = body["changes"] if isinstance(body, dict) else body
    return [change.get("payload", change)["after"] for change in changes]


def _lines(out: Path) -> Iterator[bytes]:
    with out.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))
