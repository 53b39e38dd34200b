"""The optional parts of the source: leases of its rows, and the purging of delivered rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.failpoint import reach
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Reader, RowName, Settlement, Stamp
from penstock.sources.outbox.mark.follow import PAGE, left
from penstock.sources.outbox.mark.point import of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import EVERY, of, stamp_of
from penstock.sources.outbox.mark.table import Opened, Table
from penstock.sources.outbox.rows import row_of


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
                yield from left(table, stamp, after)

    def open(self, reader: Stamp) -> TableLease:
        """Purging, resetting and confirming rows that bear the mark of this attempt."""
        return TableLease(self.opened, reader)


class TableLease:
    """Implements RowLease over a connection of its own."""

    def __init__(self, opened: Opened, stamp: Stamp) -> None:
        self._opened, self._stamp, self._own = opened, stamp, of(stamp)
        self._connection = ExitStack()
        self._table: Table | None = None

    def cursor(self, since: Cursor) -> Cursor:
        """The same position, with the stamp of this attempt."""
        return to_cursor(of_cursor(since)[0], self._stamp)

    def name(self, change: Change) -> RowName:
        """The id of the row: rows are read in the order of ids."""
        return RowName(row_of(change.facts))

    def purge(self, rows: Sequence[RowName]) -> None:
        """Delete them."""
        self._apply(rows, lambda table: table.purge(rows, self._own), is_purge=True)

    def reset(self, rows: Sequence[RowName]) -> None:
        """Remove their marks."""
        self._apply(rows, lambda table: table.reset(rows, self._own))

    def confirm(self, rows: Sequence[RowName]) -> None:
        """Count the rows that bear the mark."""
        self._apply(rows, lambda table: table.count(rows, self._own))

    def close(self) -> None:
        """Disconnect."""
        self._table = None
        self._connection.close()

    def _apply(self, rows: Sequence[RowName], statement: Callable[[Table], int], *, is_purge: bool = False) -> None:
        """Raise TermLost if a statement missed rows that exist: they bear the mark of a successor. Deleted rows are done."""
        own = self._call(statement)
        if own < len(rows) and (foreign := self._call(lambda table: table.count(rows)) - own * (not is_purge)) > 0:
            raise TermLost(f"{foreign} rows that {self._stamp.epoch}.{self._stamp.attempt} had marked bear another mark now")

    def _call(self, statement: Callable[[Table], int]) -> int:
        """The result of a statement; an error ends the connection, which raises it as a PenstockError."""
        with self._connection.pop_all() as ending:
            table, self._table = self._table or ending.enter_context(self._opened(anew=True)), None
            found = statement(table)
            self._connection, self._table = ending.pop_all(), table
        return found
