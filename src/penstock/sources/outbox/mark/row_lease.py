"""The rows that an attempt has marked; each statement is conditioned on these marks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from penstock.change import Change
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.source import RowName, Stamp
from penstock.sources.outbox.mark.point import of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import of
from penstock.sources.outbox.mark.table import Opened, Table
from penstock.sources.outbox.rows import row_of


class TableLease:
    """Implements RowLease over a connection of its own."""

    def __init__(self, opened: Opened, stamp: Stamp) -> None:
        self._opened, self._stamp, self._own = opened, stamp, of(stamp)
        self._connected: tuple[AbstractContextManager[Table], Table] | None = None

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
        connected, self._connected = self._connected, None
        if connected:
            connected[0].__exit__(None, None, None)

    def _apply(self, rows: Sequence[RowName], statement: Callable[[Table], int], *, is_purge: bool = False) -> None:
        """Raise TermLost if a statement missed rows that exist: they bear the mark of a successor. Deleted rows are done."""
        own = self._call(statement)
        if own < len(rows) and (foreign := self._call(lambda table: table.count(rows)) - own * (not is_purge)) > 0:
            raise TermLost(f"{foreign} rows that {self._stamp.epoch}.{self._stamp.attempt} had marked bear another mark now")

    def _call(self, statement: Callable[[Table], int]) -> int:
        if self._connected is None:
            opening = self._opened(anew=True)
            self._connected = opening, opening.__enter__()
        opening, table = self._connected
        try:
            return statement(table)
        except BaseException as error:
            self._connected = None
            opening.__exit__(type(error), error, error.__traceback__)  # which raises it as a PenstockError
            raise
