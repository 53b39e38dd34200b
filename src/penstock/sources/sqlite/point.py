"""The place of a reader: incarnation, position, and checksum of the change there; or a range of rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.cursor import Cursor
from penstock.errors import CursorInvalid
from penstock.sources.sqlite.ranges import Range, RangePoint, merged


@dataclass(frozen=True, slots=True)
class Point:
    """After the change at `position`, which has this `checksum`; an empty one before the first change of the log.

    `ranges` are rows to read before the stream; once all are read, those whose heads the stream has not reached.
    """

    incarnation: str
    position: int
    checksum: str
    ranges: tuple[Range, ...] = ()
    planned_at: int = 0
    version: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether rows are to be read before the stream."""
        return any(one.head is None for one in self.ranges)

    def pending(self) -> list[RangePoint]:
        """The ranges to read."""
        if not self.is_pending:
            return []
        plan = (self.position, self.planned_at, self.version)
        return [RangePoint(self.incarnation, number, one, *plan) for number, one in enumerate(self.ranges)]

    def joined(self, read: list[RangePoint]) -> Point:
        """The place of the stream after these ranges were read."""
        return replace(self, ranges=merged(one.range for one in read)).passed()

    def moved(self, position: int, checksum: str) -> Point:
        """This place at a later position."""
        if not self.ranges:
            return Point(self.incarnation, position, checksum)
        return replace(self, position=position, checksum=checksum).passed()

    def overlaps(self, position: int) -> bool:
        """Whether a range may have delivered a part of the change there: then it differs from its log row."""
        return any(position <= (one.head or 0) for one in self.ranges)

    def passed(self) -> Point:
        """This place without ranges, if the stream has reached all of their heads."""
        is_past = not self.is_pending and all(self.position >= (one.head or 0) for one in self.ranges)
        return Point(self.incarnation, self.position, self.checksum) if is_past else self

    def to_cursor(self) -> Cursor:
        """The cursor of this place."""
        facts: dict[str, Any] = {"incarnation": self.incarnation, "position": self.position, "witness": self.checksum}
        if self.ranges:
            ranges = [[one.table, one.low, one.high, one.head] for one in self.ranges]
            facts |= {"ranges": ranges, "at": self.planned_at, "version": self.version}
        if self.is_pending:  # under a key that earlier versions ignore
            facts["rows"] = [one.rows for one in self.ranges]
        return Cursor(json.dumps(facts, separators=(",", ":")))


def of_cursor(cursor: Cursor) -> Point:
    """The place of a cursor in the log. Raises CursorInvalid."""
    place = any_place(cursor)
    if isinstance(place, RangePoint):
        raise _invalid(cursor)
    return place


def any_place(cursor: Cursor) -> Point | RangePoint:
    """The place of a cursor, in the log or in a range. Raises CursorInvalid."""
    try:
        facts = dict(json.loads(cursor))
        if "range" in facts:
            one = Range(facts["table"], facts["low"], facts["high"], facts["head"], facts.get("rows"))
            return RangePoint(facts["incarnation"], facts["range"], one, facts["since"], facts["at"], facts["version"])
        if ranges := facts.pop("ranges", None):
            counted = zip(ranges, facts.get("rows") or [None] * len(ranges), strict=True)
            known = tuple(replace(Range(*one), rows=rows) for one, rows in counted)
            place = Point(facts["incarnation"], facts["position"], facts["witness"], known, facts["at"], facts["version"])
        else:
            place = Point(checksum=facts.pop("witness"), **facts)
    except (ValueError, TypeError, KeyError) as error:
        raise _invalid(cursor) from error
    if not (isinstance(place.position, int) and isinstance(place.checksum, str) and isinstance(place.incarnation, str)):
        raise _invalid(cursor)
    return place


def _invalid(cursor: Cursor) -> CursorInvalid:
    return CursorInvalid(f"{cursor!r} is not a cursor of a SQLite log")
