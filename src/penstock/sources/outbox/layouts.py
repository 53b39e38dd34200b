"""The tables that `penstock outbox init` creates."""

from __future__ import annotations

from penstock.errors import ConfigInvalid
from penstock.outbox import Table
from penstock.sources.outbox import schema
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.naming import Names


def penstock(dsn: str, table: str, notify: bool) -> Table:
    """The layout for reader snapshot, whose missing parts are created."""
    names = Names(table)

    def create() -> str:
        return "created" if schema.init(dsn, names, notify) else "exists already; missing parts are added"

    return Table(schema.statements(names, notify), create)


def goharvest(dsn: str, table: str, notify: bool) -> Table:
    """The layout for reader mark."""
    if notify:
        raise ConfigInvalid("--notify is for the layout penstock", "remove --notify: reader mark polls the table")

    def create() -> str:
        return "created" if databases.create(dsn, table) else "exists already and stays as it is"

    return Table([databases.statement(dsn, table)], create)
