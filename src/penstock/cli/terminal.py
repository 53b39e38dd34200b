"""How the program speaks to people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import ConfigInvalid, PenstockError
from penstock.printable import as_json, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


_UNLIMITED = 10_000
"""Characters: more than any cell has."""


def say(*lines: str, err: bool = False, colour: str | None = None) -> None:
    """Print these lines on stdout, or on stderr; what a line has from elsewhere cannot steer the terminal."""
    for line in lines:
        typer.secho(printable(line), err=err, fg=colour)


def say_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    typer.echo(as_json(value))


def say_code(text: str) -> None:
    """Print SQL or YAML on stdout, and warn if a character of it is shown by its code: such a text cannot be run."""
    lines = text.rstrip("\n").split("\n")
    say(*lines)
    if any(printable(line) != line for line in lines):
        say("warning: characters that do not print are shown by their codes: this text cannot be run as it is", err=True)


def confirm(question: str, err: bool = False) -> None:
    """Ask on the terminal, and end the program if the answer is no."""
    typer.confirm(printable(question), abort=True, err=err)


def plain(text: str, style: str = "") -> Text:
    """Text that is no markup, and that cannot steer the terminal."""
    from rich.text import Text

    return Text(printable(text), style)


def complain(error: PenstockError) -> None:
    """Say on stderr which error it is, what happened, and what to do; no traceback."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(told(error.code, error.message, error.remedy))


def told(code: str, message: str, remedy: str) -> Text:
    """An error for people; the mistakes in a pipeline file each on its own line."""
    from rich.text import Text

    lines = message.split("; ") if code == ConfigInvalid.code else [message]
    text = Text.assemble((printable(code), "bold red"), *(f"\n  {printable(line)}" for line in lines))
    return text.append_text(Text.assemble(("\n  what to do: ", "bold"), printable(remedy))) if remedy else text


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table whose cells are text, not markup."""
    from rich.table import Table

    made = Table(
        title=None if title is None else plain(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(plain, row))
    return made


def show(*parts: RenderableType) -> None:
    """Print on stdout; lines are not folded in a pipe, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    console.print(*parts)
