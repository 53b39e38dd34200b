"""`penstock outbox`: making the table that applications stash messages in."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pkgutil import resolve_name
from typing import Annotated

import typer

from penstock.errors import ConfigInvalid
from penstock.outbox import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Stash messages in the transaction that makes them true; a pipeline carries them on.",
)


class Layout(StrEnum):
    """The columns of the table."""

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
    """Create an outbox. Existing parts stay as they are, except a sequence with a cache, which is corrected.

    Examples: `penstock outbox init postgresql://app@localhost/shop`, `penstock outbox init postgresql://... --table shop.events`,
    `penstock outbox init postgresql://... --layout goharvest`
    """
    from penstock.cli import terminal

    try:
        made = _implementation(layout)(dsn, table, notify)
    except ValueError as error:
        raise ConfigInvalid(str(error), "correct DSN or --table") from error
    if print_sql:
        terminal.say_code("\n".join(f"{statement};" for statement in made.statements()))
    else:
        terminal.say(f"{table}: {made.create()}")


def _implementation(layout: Layout) -> Callable[[str, str, bool], Table]:
    from penstock import registry

    place = next(kind.layouts[layout] for kind in registry.sources().values() if layout in kind.layouts)
    found: Callable[[str, str, bool], Table] = resolve_name(place)
    return found
