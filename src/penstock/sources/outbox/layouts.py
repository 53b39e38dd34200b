"""The tables that `penstock outbox init` creates."""

from __future__ import annotations

from penstock.errors import ConfigInvalid
from penstock.sources.outbox import schema
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.naming import Names


class PenstockTable:
    """The layout for reader snapshot."""

    def __init__(self, dsn: str, table: str, notify: bool) -> None:
        self._dsn, self._names, self._notify = dsn, Names(table), notify

    def statements(self) -> list[str]:
        """The SQL that creates the table."""
        return schema.statements(self._names, self._notify)

    def create(self) -> str:
        """Create the missing parts of the outbox."""
        return "created" if schema.init(self._dsn, self._names, self._notify) else "exists already; missing parts are added"


class GoharvestTable:
    """The layout for reader mark."""

    def __init__(self, dsn: str, table: str, notify: bool) -> None:
        if notify:
            raise ConfigInvalid("--notify is for the layout penstock", "remove --notify: reader mark polls the table")
        databases.opened(dsn, table)
        self._dsn, self._table = dsn, table

    def statements(self) -> list[str]:
        """The SQL that creates the table."""
        return [databases.statement(self._dsn, self._table)]

    def create(self) -> str:
        """Create the table unless it exists."""
        return "created" if databases.create(self._dsn, self._table) else "exists already and stays as it is"
