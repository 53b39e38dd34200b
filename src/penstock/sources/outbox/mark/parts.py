"""The optional parts of the source: leases of its rows, and the purging of delivered rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.failpoint import reach
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Reader, RowLease, Settlement, Stamp
from penstock.sources.outbox.mark.follow import PAGE, left
from penstock.sources.outbox.mark.point import of_cursor, to_cursor
from penstock.sources.outbox.mark.row_lease import TableLease
from penstock.sources.outbox.mark.stamp import EVERY, of, stamp_of
from penstock.sources.outbox.mark.table import Opened


@dataclass(frozen=True, slots=True)
class MarkRetention:
    """No pipeline is registered: all rows of the table are undelivered."""

    opened: Opened = field(repr=False)

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Remove all marks for a pipeline without a watermark: marks of an earlier one, with other epochs, would hide rows."""
        self._unmark()

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """Nothing is noted."""
        return None

    def readers(self) -> Sequence[Reader]:
        """None."""
        return ()

    def remarks(self) -> Sequence[str]:
        """None."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Purge one page of the rows that were delivered up to this cursor; the next call comes soon."""
        reach("source.settling")
        position, stamp = of_cursor(upto)
        with self.opened() as table:
            return Settlement(0 if stamp == ANONYMOUS else table.purge_span(of(stamp, position), PAGE))

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove the marks of all rows; False if no row bore one."""
        return self._unmark() > 0

    def _unmark(self) -> int:
        with self.opened() as table:
            return table.reset([row for row, _ in table.marked(EVERY)], EVERY)


@dataclass(frozen=True, slots=True)
class MarkLeases:
    """The mark of a row is its lease."""

    opened: Opened = field(repr=False)

    def target(self, lane: Lane) -> Cursor:
        """The time of the database, which is before the marks of existing rows; the beginning, where no rows exist."""
        with self.opened() as table:
            return to_cursor(table.now() if table.waiting(of(ANONYMOUS, 0))[0] else 0)

    def leased(self, lane: Lane, after: Cursor) -> Iterator[pa.RecordBatch]:
        """The rows that bear a mark of Penstock after a cursor, attempt by attempt."""
        with self.opened(anew=True) as table:
            for stamp in sorted({stamp_of(marked) for _, marked in table.marked(EVERY)} - {ANONYMOUS}):
                yield from left(table, stamp, after, of(stamp).high)

    def open(self, reader: Stamp) -> RowLease:
        """Purging, resetting and confirming rows that bear the mark of this attempt."""
        return TableLease(self.opened, reader)
