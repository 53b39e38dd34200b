"""Ranges of existing rows, and the changes of the log that they include. Pure.

A range is read in one transaction with the position of the log at that time, its head: its rows include the changes up to the head
and none after it. The stream begins at the position of the log before the first range, and omits changes at or below the head of
the range of their row: no change is missing, and none comes twice.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from operator import attrgetter

from penstock.cursor import Cursor
from penstock.sources.sqlite.image import NEW, OLD, OP, SEQ, SHAPE, VALUES, Imager, NotUtf8, Row
from penstock.sources.sqlite.shape import Shape

ORDINALS = 10**9
"""More rows than a range has: ordinals of different ranges are distinct, also those that a function makes of a row."""

SIDES = {"insert": (NEW,), "refresh": (NEW,), "update": (OLD, NEW), "delete": (OLD,)}  # the rows of an event

Edge = int | str  # the bound between two ranges


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of a table, by the first column of its key: from `low` on and below `high`, None where there is no bound.

    `head` is the position of the log at which they were read, None before. `rows` is their number when the range was cut, or the
    least number if `high` is None; cursors of earlier versions lack it.
    """

    table: str
    low: Edge | None = None
    high: Edge | None = None
    head: int | None = None
    rows: int | None = None


def cut(table: str, edges: Sequence[Edge | None], rows: int, most: int) -> list[Range]:
    """The ranges of a table, cut before at most `most` of these edges, which are `rows` rows apart; None for an unusable edge."""
    known = [(number, edge) for number, edge in enumerate(edges, 1) if edge is not None]
    kept = [(0, None), *known[:: len(known) // most + 1], (len(edges), None)]
    return [Range(table, low, high, rows=(end - begin) * rows) for (begin, low), (end, high) in pairwise(kept)]


@dataclass(frozen=True, slots=True)
class Ruler:
    """The order of the rows of a shape in SQLite, by the first column of their key, or by row id."""

    column: str | None
    collation: str

    def of(self, value: object) -> tuple[object, ...]:
        """A tuple that Python orders as SQLite orders the value."""
        if value is None:
            return (0,)
        if isinstance(value, int | float):
            return (1, value)
        is_text = isinstance(value, str | NotUtf8)
        raw = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
        return (2, _COLLATIONS[self.collation](raw)) if is_text else (3, raw)


def ruler(shape: Shape) -> Ruler | None:
    """The ruler of a shape; None for a collation of the application."""
    column = shape.key[0] if shape.key else None
    keys = [unique.columns for unique in shape.uniques if {name for name, _ in unique.columns} == set(shape.key)]
    collation = next((collation for name, collation in keys[0] if name == column), "BINARY") if keys else "BINARY"
    return Ruler(column, collation.upper()) if collation.upper() in _COLLATIONS else None


_COLLATIONS: Mapping[str, Callable[[bytes], object]] = {
    "BINARY": bytes,
    "NOCASE": lambda text: (text.partition(b"\0")[0].lower(), len(text)),  # after a NUL it compares only the length
    "RTRIM": lambda text: text.rstrip(b" "),
}


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same rows; adjacent ranges with the same head become one."""
    runs = (list(run) for _, run in groupby(ranges, key=attrgetter("table", "head")))
    return tuple(replace(run[0], high=run[-1].high, rows=None) for run in runs)


@dataclass(frozen=True, slots=True)
class RangePoint:
    """A range as a lane; its snapshot was planned at the position `since`, the time `planned_at` and a `version` of the schema."""

    incarnation: str
    number: int
    range: Range
    since: int
    planned_at: int
    version: int

    @property
    def position(self) -> int:
        """The position of the log at which it was read; -1 before."""
        return -1 if self.range.head is None else self.range.head

    def to_cursor(self) -> Cursor:
        """The cursor of this place."""
        one = self.range
        facts = {"table": one.table, "low": one.low, "high": one.high, "head": one.head, "rows": one.rows}
        plan = {"since": self.since, "at": self.planned_at, "version": self.version}
        facts = {"incarnation": self.incarnation, "range": self.number, **facts, **plan}
        return Cursor(json.dumps(facts, separators=(",", ":")))


class CatchUp:
    """The changes of the log that the ranges of a snapshot do not include."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.until = max((one.head or 0 for one in ranges), default=0)
        tables = {one.table for one in ranges}
        self._ranges = {table: [one for one in ranges if one.table == table] for table in tables}
        self._edges: dict[str, list[tuple[object, ...]]] = {}

    def rest(self, rows: Iterable[Row], imagers: Mapping[int, Imager]) -> list[Row]:
        """The log rows, or the sides of them, that no range includes."""
        return [row for given in rows for row in self._rest(given, imagers)]

    def _rest(self, row: Row, imagers: Mapping[int, Imager]) -> Iterator[Row]:
        known = imagers.get(row[SHAPE])
        if known is None or row[SEQ] > self.until or known.shape.table not in self._ranges or row[OP] not in SIDES:
            yield row
            return
        sides = SIDES[row[OP]]
        news = [side for side in sides if row[SEQ] > self._head(row, side, known.shape)]
        if len(news) == len(sides):
            yield row
        elif news:  # the row moved from one range to another: one was read before the move, the other after it
            yield one_side(row, news[0], len(known.shape.columns))

    def _head(self, row: Row, side: int, shape: Shape) -> int:
        """The head of the range of this side of a change."""
        ranges, measure = self._ranges[shape.table], ruler(shape)
        if len(ranges) == 1 or measure is None:
            return ranges[0].head or 0
        if shape.table not in self._edges:
            self._edges[shape.table] = [measure.of(one.low) for one in ranges[1:]]
        value = measure.of(side_value(row, side, shape, measure))
        return ranges[bisect_right(self._edges[shape.table], value)].head or 0


catch_up = lru_cache(maxsize=8)(CatchUp)  # one instance for all chunks of the log


def side_value(row: Row, side: int, shape: Shape, measure: Ruler) -> object:
    """The value that the ruler compares, in the old or the new row: an update has both, the old one first."""
    if measure.column is None:
        return row[side]
    is_second = side == NEW and row[OP] == "update"
    return row[VALUES + shape.columns.index(measure.column) + is_second * len(shape.columns)]


def one_side(row: Row, side: int, width: int) -> Row:
    """One side of an event: the delete of the old row, or the insert of the new one."""
    op, first = ("delete", VALUES) if side == OLD else ("insert", VALUES + width)
    head = list(row[:VALUES])
    head[OP], head[OLD], head[NEW] = op, row[OLD] if side == OLD else None, row[NEW] if side == NEW else None
    return (*head, *row[first : first + width], *[None] * (len(row) - VALUES - width))
