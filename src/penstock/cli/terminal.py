"""How the program speaks to people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ConfigInvalid, PenstockError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


_UNLIMITED = 10_000
"""Characters: more than any cell has."""


def complain(error: PenstockError) -> None:
    """Say on stderr which error it is, what happened, and what to do; no traceback."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, highlight=False).print(told(error.code, error.message, error.remedy))


def told(code: str, message: str, remedy: str) -> Text:
    """An error for people; the mistakes in a pipeline file each on its own line."""
    from rich.text import Text

    lines = message.split("; ") if code == ConfigInvalid.code else [message]
    text = Text.assemble((code, "bold red"), *(f"\n  {line}" for line in lines))
    return text.append_text(Text.assemble(("\n  what to do: ", "bold"), remedy)) if remedy else text


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table whose cells are text, not markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def show(*parts: RenderableType) -> None:
    """Print on stdout; lines are not folded in a pipe, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    console.print(*parts)
