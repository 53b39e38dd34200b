"""The rows that an attempt has marked: each statement is conditioned on its own mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from penstock.change import Change
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.source import RowName, Stamp
from penstock.sources.outbox.mark.place import of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import of
from penstock.sources.outbox.mark.table import Opened, Table
from penstock.sources.outbox.rows import row_of

T = TypeVar("T")


class TableLease:
    """Implements RowLease, over a connection of its own."""

    def __init__(self, opened: Opened, stamp: Stamp) -> None:
        self._opened, self._stamp, self._own = opened, stamp, of(stamp)
        self._connected: tuple[AbstractContextManager[Table], Table] | None = None

    def cursor(self, since: Cursor) -> Cursor:
        """The same position, with this attempt's stamp."""
        return to_cursor(of_cursor(since)[0], self._stamp)

    def name(self, change: Change) -> RowName:
        """The id of the row: ids tell the order in which rows are read."""
        return RowName(row_of(change.facts))

    def purge(self, rows: Sequence[RowName]) -> None:
        """Delete them."""
        gone = self._ask(lambda table: table.purge(rows, self._own))
        if gone < len(rows):
            self._judge(self._ask(lambda table: table.there(rows)))

    def reset(self, rows: Sequence[RowName]) -> None:
        """Take the mark from them."""
        done = self._ask(lambda table: table.reset(rows, self._own))
        if done < len(rows):
            self._judge(self._ask(lambda table: table.there(rows)) - done)

    def confirm(self, rows: Sequence[RowName]) -> None:
        """Count those that bear the mark."""
        own = self._ask(lambda table: table.bearing(rows, self._own))
        if own < len(rows):
            self._judge(self._ask(lambda table: table.there(rows)) - own)

    def close(self) -> None:
        """Disconnect."""
        connected, self._connected = self._connected, None
        if connected:
            connected[0].__exit__(None, None, None)

    def _judge(self, foreign: int) -> None:
        """Rows that are gone need nothing any more; those that are there and not ours are a successor's."""
        if foreign > 0:
            raise TermLost(f"{foreign} rows that {self._stamp.epoch}.{self._stamp.attempt} had marked bear another mark now")

    def _ask(self, ask: Callable[[Table], T]) -> T:
        if self._connected is None:
            opening = self._opened(anew=True)
            self._connected = opening, opening.__enter__()
        opening, table = self._connected
        try:
            return ask(table)
        except BaseException as error:
            self._connected = None
            opening.__exit__(type(error), error, error.__traceback__)  # which raises it in our words
            raise
