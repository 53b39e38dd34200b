"""Output on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import ConfigInvalid, PenstockError
from penstock.text.printable import as_json, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Column, Table
    from rich.text import Text

    from penstock.capture import Progress

_UNLIMITED = 10_000
"""Characters: more than any cell has."""


def say(*lines: str, err: bool = False, colour: str | None = None) -> None:
    """Print lines on stdout or stderr, without control characters."""
    for line in lines:
        typer.secho(printable(line), err=err, fg=colour)


def say_json(*values: Any) -> None:
    """Print each value as one line of JSON on stdout."""
    for value in values:
        typer.echo(as_json(value))


def say_code(text: str) -> None:
    """Print SQL or YAML on stdout, with a warning if escaped characters make it unusable."""
    lines = text.rstrip("\n").split("\n")
    say(*lines)
    if any(printable(line) != line for line in lines):
        say("warning: non-printing characters are shown by their codes: this text cannot be run as it is", err=True)


def say_sql(statements: Sequence[str]) -> None:
    """Print SQL statements on stdout."""
    say_code("\n".join(f"{statement};" for statement in statements))


def confirm(question: str, is_given: bool, err: bool = False) -> None:
    """Ask a question unless the confirmation is given; end the program if the answer is no."""
    if not is_given:
        typer.confirm(printable(question), abort=True, err=err)


def plain(text: str, style: str = "") -> Text:
    """Text without markup and control characters."""
    from rich.text import Text

    return Text(printable(text), style)


def complain(error: PenstockError) -> None:
    """Print an error on stderr: code, message and remedy, without a traceback."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(told(error.code, error.message, error.remedy))


def told(code: str, message: str, remedy: str) -> Text:
    """An error as text; each defect of a pipeline file is on its own line."""
    from rich.text import Text

    lines = message.split("; ") if code == ConfigInvalid.code else [message]
    text = Text.assemble((printable(code), "bold red"), *(f"\n  {printable(line)}" for line in lines))
    return text.append_text(Text.assemble(("\n  what to do: ", "bold"), printable(remedy))) if remedy else text


def table(
    columns: Sequence[str | Column], rows: Sequence[Sequence[str | Text]], title: str = "", *, has_header: bool = True
) -> Table:
    """A table without borders."""
    from rich.table import Column, Table

    made = Table(
        *(Column(column, overflow="fold") if isinstance(column, str) else column.copy() for column in columns),
        title=plain(title) if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=has_header,
    )
    for row in rows:
        made.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def show(*parts: RenderableType) -> None:
    """Print on stdout; in a pipe, lines are not folded unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    console.print(*parts)


@contextmanager
def scanning() -> Iterator[Progress]:
    """The progress of a scan of tables: a bar for each table on a terminal, no output elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def show(table: str, done: int, of: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(printable(table))
            bars.update(tasks[table], completed=done, total=of)

        yield show
