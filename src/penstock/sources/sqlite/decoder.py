"""How rows of the log are read: all shapes by number, and which of them are wanted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import CaptureBroken, LogDamaged, PenstockError
from penstock.sources.sqlite.catalog import Healing
from penstock.sources.sqlite.database import repair_remedy
from penstock.sources.sqlite.image import COLUMNS, OP, SEQ, SHAPE, VALUES, Imager, Row, change_at, to_changes
from penstock.sources.sqlite.place import Place
from penstock.sources.sqlite.ranges import catch_up

CHOOSE = "decide where to go on: penstock run FILE --from POSITION|beginning|now"


@dataclass(frozen=True, slots=True)
class LogChunk:
    """The changes up to a place, and where the log ended when they were read; cut if the next row cannot be delivered."""

    changes: pa.RecordBatch
    end: Place
    head: int
    is_cut: bool = False


class Rows(NamedTuple):
    """Rows of the log as they were read."""

    rows: list[Row]
    is_doubtful: bool  # some text may not be UTF-8
    is_cut: bool = False  # there may be more, which would take too much memory


class LogDecoder:
    """How rows of the log are read: all shapes by number, and which of them are wanted."""

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

    def wanted(self, rows: list[Row]) -> list[Row]:
        """Those of the chosen shapes."""
        return [row for row in rows if abs(row[SHAPE]) in self.chosen] if self.is_choosy else rows

    def behind(self, row: Row, incarnation: str) -> Place:
        """The place behind a row."""
        return Place(incarnation, row[SEQ], change_at(row, self.imagers).checksum())

    def moved(self, after: Place, row: Row, is_cut: bool) -> Place:
        """Where one stands behind this row, the last that was read."""
        is_partial = is_cut and after.overlaps(row[SEQ])
        return after.moved(row[SEQ], "" if is_partial else change_at(row, self.imagers).checksum())

    def is_clear(self, rows: list[Row]) -> bool:
        """Whether all of these are events."""
        return {row[SHAPE] for row in rows} <= self.imagers.keys()

    def is_made_up_for(self, row: Row, healed: Mapping[int, Healing]) -> bool:
        """Whether a row that is no event may be passed over, because the log goes on to tell what it does not."""
        lineage = self.lineages.get(-(row[SHAPE] or 0))
        return lineage is not None and healed.get(lineage, Healing()).covers(row[SEQ], row[OP])

    def chunk(self, behind: Rows, after: Place, head: int, healed: Mapping[int, Healing]) -> LogChunk:
        """What can be delivered of the rows behind a place, up to the first that cannot be."""
        wanted = self.wanted(behind.rows)
        if not self.is_clear(wanted):
            wanted = [row for row in wanted if row[SHAPE] in self.imagers or not self.is_made_up_for(row, healed)]
        if after.ranges:
            wanted = catch_up(after.ranges).rest(wanted, self.imagers)
        good = len(wanted)
        if not self.is_clear(wanted):
            good = next(i for i, row in enumerate(wanted) if row[SHAPE] not in self.imagers)
            if good == 0:
                raise self.fault(wanted[0])
        is_cut = good < len(wanted)
        last = wanted[good - 1 : good] if is_cut else behind.rows[-1:]
        end = self.moved(after, last[0], is_cut) if last else after
        return LogChunk(to_changes(wanted[:good], self.imagers, is_doubtful=behind.is_doubtful), end, head, is_cut)

    def fault(self, row: Row) -> PenstockError:
        """Why a row cannot be delivered."""
        known = self.imagers.get(-(row[SHAPE] or 0))
        if not known:
            return LogDamaged(f"the log does not know the shape {row[SHAPE]} of the change {row[SEQ]}", CHOOSE)
        table = known.shape.table
        remedy = f"{repair_remedy(self.path, table)}; or, to go on without them: penstock run FILE --from {row[SEQ]}"
        if row[OP] == "gap":
            return CaptureBroken(f"changes of {table} are missing before position {row[SEQ]}: it {row[VALUES]}", remedy)
        action = "an action of a foreign key that its own change caused"
        why = f"the table had been altered, or the row was changed again, or removed, by {action}"
        return CaptureBroken(f"the change {row[SEQ]} of {table} cannot be told exactly: {why}", remedy)
