"""Shared by sources with one lane, which never ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid
from penstock.source import Source, Span

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OneLane(Source):
    """A source with one lane."""

    lane = Lane("log")

    def lanes(self) -> Sequence[Lane]:
        """The lane."""
        return (self.lane,)


def number(start: str, words: str) -> int:
    """The position that `start` names; `words` are the other valid starts. Raises ConfigInvalid."""
    try:
        return int(start)
    except ValueError:
        raise ConfigInvalid(f"{start!r} is no place to start at", f"choose {words} or a position") from None


def cuts(after: int, upto: int, parts: int) -> list[int]:
    """The positions that cut the changes after one position, up to another, into about equal parts."""
    return sorted({after + (upto - after) * i // parts for i in range(1, parts)} - {after, upto})


def pieces(span: Span, inner: Iterable[Cursor]) -> list[Span]:
    """The span, cut at these cursors."""
    return [Span(span.lane, first, last) for first, last in pairwise([span.after, *inner, span.upto])]


def batch_of(schema: pa.Schema, columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    """Changes with these columns; missing columns are null."""
    arrays = [pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(rows, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def moment(microseconds: int | None) -> datetime | None:
    """The time of a number of microseconds since 1970."""
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
