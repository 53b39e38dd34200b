"""`penstock outbox`: making the table that applications stash messages in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.errors import ConfigInvalid

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Stash messages in the transaction that makes them true; a pipeline carries them on.",
)


class Layout(StrEnum):
    """Which columns the table has."""

    PENSTOCK = "penstock"
    GOHARVEST = "goharvest"


@app.callback()
def outbox() -> None:
    """Keep `init` a command of its own: a Typer app with one command would swallow its name."""


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
        bool, typer.Option("--notify", help="Let every insert wake readers: less delay at low rates, and a cost to writers.")
    ] = False,
    layout: Annotated[
        Layout, typer.Option("--layout", help="`penstock`, for reader snapshot; `goharvest`, for reader mark: its own table.")
    ] = Layout.PENSTOCK,
    print_sql: Annotated[bool, typer.Option("--print-sql", help="Show the SQL and change nothing.")] = False,
) -> None:
    """Create an outbox; what is there already stays as it is, but a sequence with a cache is put right.

    Examples: `penstock outbox init postgresql://app@localhost/shop`, `penstock outbox init postgresql://... --table shop.events`,
    `penstock outbox init postgresql://... --layout goharvest`
    """
    from penstock.cli import terminal
    from penstock.sources.outbox import schema
    from penstock.sources.outbox.naming import Names

    try:
        names = Names(table)
    except ValueError as error:
        raise ConfigInvalid(str(error), "correct --table") from error
    if layout is Layout.GOHARVEST:
        _init_goharvest(dsn, table, notify, print_sql)
        return
    if print_sql:
        terminal.say_code("\n".join(f"{statement};" for statement in schema.statements(names, notify)))
        return
    is_new = schema.init(dsn, names, notify)
    terminal.say(f"{table}: created" if is_new else f"{table}: was there already; what was missing has been added")


def _init_goharvest(dsn: str, table: str, notify: bool, print_sql: bool) -> None:
    from penstock.cli import terminal
    from penstock.sources.outbox.mark import databases

    if notify:
        raise ConfigInvalid("--notify is for the layout penstock", "leave it out: reader mark looks by itself")
    try:
        made = databases.statements(dsn, table)
    except ValueError as error:
        raise ConfigInvalid(str(error), "correct DSN or --table") from error
    if print_sql:
        terminal.say_code("\n".join(f"{statement};" for statement in made))
        return
    terminal.say(f"{table}: created" if databases.create(dsn, table) else f"{table}: was there already, and stays as it is")
