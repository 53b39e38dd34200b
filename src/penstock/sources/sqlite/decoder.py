"""Reading rows of the log: all shapes by number, and the chosen ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import CaptureBroken, LogDamaged, PenstockError
from penstock.sources.sqlite.catalog import Healing
from penstock.sources.sqlite.database import repair_remedy
from penstock.sources.sqlite.image import COLUMNS, OP, SEQ, SHAPE, VALUES, Imager, Row, change_at, to_changes
from penstock.sources.sqlite.point import Point
from penstock.sources.sqlite.ranges import catch_up

CHOOSE = "choose where to continue: penstock run FILE --from POSITION|beginning|now"


@dataclass(frozen=True, slots=True)
class LogChunk:
    """The changes up to a place, and the head of the log at that time; cut if the next row cannot be delivered."""

    changes: pa.RecordBatch
    end: Point
    head: int
    is_cut: bool = False


class Rows(NamedTuple):
    """Rows of the log."""

    rows: list[Row]
    is_doubtful: bool  # some text may not be UTF-8
    is_cut: bool = False  # there may be more rows, which would take too much memory


class LogDecoder:
    """Makes changes of log rows: all shapes by number, and the chosen ones."""

    def __init__(self, path: str, imagers: Mapping[int, Imager], lineages: Mapping[int, int], chosen: Collection[int]) -> None:
        self.path, self.imagers, self.lineages, self.chosen = path, imagers, lineages, chosen
        self.is_choosy = len(chosen) < len(imagers)
        widest = max((len(one.shape.columns) for one in imagers.values()), default=1) or 1
        numbers = ", ".join(f"{number}, {-number}" for number in sorted(chosen))
        self.condition = f"shape in ({numbers})" if self.is_choosy else "1"
        ends = f" and (seq = ?1 or seq = ?2 or {self.condition})" if self.is_choosy else ""
        self._chosen = f"from _penstock_log where seq between ?1 and ?2{ends} order by seq"
        self.query, self.query_of_one_image = self._query(2 * widest), self._query(max(2, widest))

    def _query(self, values: int) -> str:
        return f"select {', '.join([COLUMNS, *(f'c{i}' for i in range(values))])} {self._chosen}"

    def place_after(self, row: Row, incarnation: str) -> Point:
        """The place after a row."""
        return Point(incarnation, row[SEQ], change_at(row, self.imagers).checksum())

    def moved(self, after: Point, row: Row, is_cut: bool) -> Point:
        """The place after the last row that was read."""
        is_partial = is_cut and after.overlaps(row[SEQ])
        return after.moved(row[SEQ], "" if is_partial else change_at(row, self.imagers).checksum())

    def is_clear(self, rows: list[Row]) -> bool:
        """Whether all of these rows are events."""
        return {row[SHAPE] for row in rows} <= self.imagers.keys()

    def is_replaced(self, row: Row, healed: Mapping[int, Healing]) -> bool:
        """Whether later rows of the log replace a row that is no event."""
        lineage = self.lineages.get(-(row[SHAPE] or 0))
        return lineage is not None and healed.get(lineage, Healing()).covers(row[SEQ], row[OP])

    def chunk(self, found: Rows, after: Point, head: int, healed: Mapping[int, Healing]) -> LogChunk:
        """The changes of the rows after a place, up to the first row that cannot be delivered."""
        wanted = [row for row in found.rows if abs(row[SHAPE]) in self.chosen] if self.is_choosy else found.rows
        if not self.is_clear(wanted):
            wanted = [row for row in wanted if row[SHAPE] in self.imagers or not self.is_replaced(row, healed)]
        if after.ranges:
            wanted = catch_up(after.ranges).rest(wanted, self.imagers)
        good = len(wanted)
        if not self.is_clear(wanted):
            good = next(i for i, row in enumerate(wanted) if row[SHAPE] not in self.imagers)
            if good == 0:
                raise self.fault(wanted[0])
        is_cut = good < len(wanted)
        last = wanted[good - 1 : good] if is_cut else found.rows[-1:]
        end = self.moved(after, last[0], is_cut) if last else after
        return LogChunk(to_changes(wanted[:good], self.imagers, is_doubtful=found.is_doubtful), end, head, is_cut)

    def fault(self, row: Row) -> PenstockError:
        """The error for a row that cannot be delivered."""
        known = self.imagers.get(-(row[SHAPE] or 0))
        if not known:
            return LogDamaged(f"the shape {row[SHAPE]} of the change {row[SEQ]} is missing from the catalogue of the log", CHOOSE)
        table = known.shape.table
        remedy = f"{repair_remedy(self.path, table)}; or, to continue without them: penstock run FILE --from {row[SEQ]}"
        if row[OP] == "gap":
            return CaptureBroken(f"changes of {table} are missing before position {row[SEQ]}: it {row[VALUES]}", remedy)
        action = "an action of a foreign key that its own change caused"
        why = f"the table was altered, or the row was changed again, or removed, by {action}"
        return CaptureBroken(f"the change {row[SEQ]} of {table} is not recorded exactly: {why}", remedy)
