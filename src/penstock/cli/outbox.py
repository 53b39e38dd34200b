"""`penstock outbox`: create the table to which applications write messages."""

from __future__ import annotations

from enum import StrEnum
from pkgutil import resolve_name
from typing import Annotated

import typer

from penstock import registry
from penstock.cli import terminal
from penstock.cli.options import PrintSql, group
from penstock.errors import ConfigInvalid
from penstock.outbox import Table

app = group("Create an outbox: applications write messages to it in their own transactions, and a pipeline delivers them.")


class Layout(StrEnum):
    """The columns of the table."""

    PENSTOCK = "penstock"
    GOHARVEST = "goharvest"


@app.callback()
def outbox() -> None:
    """Keep `init` a subcommand: Typer omits the name of an app's only command."""


@app.command()
def init(
    dsn: Annotated[
        str,
        typer.Argument(
            metavar="DSN",
            help="postgresql://user@host/database; for the layout goharvest also mysql://..., mariadb://... or a SQLite file.",
        ),
    ],
    table: Annotated[str, typer.Option("--table", metavar="TABLE", help="NAME or SCHEMA.NAME of the outbox.")] = "outbox",
    notify: Annotated[
        bool, typer.Option("--notify", help="Every insert wakes readers: less delay at low rates, slower inserts.")
    ] = False,
    layout: Annotated[
        Layout,
        typer.Option("--layout", help="`penstock` for reader snapshot, `goharvest` for reader mark."),
    ] = Layout.PENSTOCK,
    print_sql: PrintSql = False,
) -> None:
    """Create an outbox. Existing parts stay as they are, except a sequence with a cache, which is corrected.

    Examples: `penstock outbox init postgresql://app@localhost/shop`, `penstock outbox init postgresql://... --table shop.events`,
    `penstock outbox init postgresql://... --layout goharvest`
    """
    place = next(kind.layouts[layout] for kind in registry.sources().values() if layout in kind.layouts)
    try:
        made: Table = resolve_name(place)(dsn, table, notify)
    except ValueError as error:
        raise ConfigInvalid(str(error), "correct DSN or --table") from error
    if print_sql:
        terminal.say_sql(made.statements)
    else:
        terminal.say(f"{table}: {made.create()}")
