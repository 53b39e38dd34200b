"""Where a reader stands: at a position of the log, with its life and how the change there looks; or at a range of rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.cursor import Cursor
from penstock.errors import CursorInvalid
from penstock.sources.sqlite.ranges import Range, RangePlace, merged


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the change at `position`, whose digest is `checksum`; an empty one before the first change of the log.

    `ranges` are rows that go before the stream, and once all of them were read, those whose changes the stream still overlaps with.
    """

    incarnation: str
    position: int
    checksum: str
    ranges: tuple[Range, ...] = ()
    planned_at: int = 0
    version: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether rows are still to be read before the stream goes on."""
        return any(one.head is None for one in self.ranges)

    def pending(self) -> list[RangePlace]:
        """The ranges to read."""
        if not self.is_pending:
            return []
        plan = (self.position, self.planned_at, self.version)
        return [RangePlace(self.incarnation, number, one, *plan) for number, one in enumerate(self.ranges)]

    def joined(self, read: list[RangePlace]) -> Place:
        """The place from which the stream goes on when these were read."""
        return replace(self, ranges=merged(one.range for one in read)).passed()

    def moved(self, position: int, checksum: str) -> Place:
        """This place further on."""
        if not self.ranges:
            return Place(self.incarnation, position, checksum)
        return replace(self, position=position, checksum=checksum).passed()

    def overlaps(self, position: int) -> bool:
        """Whether a change there may have been told by a range, in part: then it does not look as it does in the log."""
        return any(position <= (one.head or 0) for one in self.ranges)

    def passed(self) -> Place:
        """Without ranges that no longer matter: the stream has come past their heads."""
        is_past = not self.is_pending and all(self.position >= (one.head or 0) for one in self.ranges)
        return Place(self.incarnation, self.position, self.checksum) if is_past else self

    def to_cursor(self) -> Cursor:
        """The cursor that says this."""
        facts: dict[str, Any] = {"incarnation": self.incarnation, "position": self.position, "witness": self.checksum}
        if self.ranges:
            ranges = [[one.table, one.low, one.high, one.head] for one in self.ranges]
            facts |= {"ranges": ranges, "at": self.planned_at, "version": self.version}
        if self.is_pending:  # by a name of its own, which earlier versions ignore
            facts["rows"] = [one.rows for one in self.ranges]
        return Cursor(json.dumps(facts, separators=(",", ":")))


def of_cursor(cursor: Cursor) -> Place:
    """The place a cursor names. Raises CursorInvalid."""
    place = any_place(cursor)
    if isinstance(place, RangePlace):
        raise _invalid(cursor)
    return place


def any_place(cursor: Cursor) -> Place | RangePlace:
    """The place in the log, or the range, that a cursor names. Raises CursorInvalid."""
    try:
        facts = json.loads(cursor)
        if "range" in facts:
            return _range_place(facts)
        ranges = tuple(Range(*one) for one in facts.pop("ranges", ()))
        place = Place(checksum=facts.pop("witness"), **facts) if not ranges else _with_ranges(facts, ranges)
    except (ValueError, TypeError, KeyError) as error:
        raise _invalid(cursor) from error
    if not (isinstance(place.position, int) and isinstance(place.checksum, str) and isinstance(place.incarnation, str)):
        raise _invalid(cursor)
    return place


def _with_ranges(facts: dict[str, Any], ranges: tuple[Range, ...]) -> Place:
    counted = facts.get("rows") or [None] * len(ranges)
    ranges = tuple(replace(one, rows=rows) for one, rows in zip(ranges, counted, strict=True))
    return Place(facts["incarnation"], facts["position"], facts["witness"], ranges, facts["at"], facts["version"])


def _range_place(facts: dict[str, Any]) -> RangePlace:
    one = Range(facts["table"], facts["low"], facts["high"], facts["head"], facts.get("rows"))
    return RangePlace(facts["incarnation"], facts["range"], one, facts["since"], facts["at"], facts["version"])


def _invalid(cursor: Cursor) -> CursorInvalid:
    return CursorInvalid(f"{cursor!r} is not a cursor of a SQLite log")
