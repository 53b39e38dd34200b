"""How the program speaks to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ConfigInvalid, PenstockError

if TYPE_CHECKING:
    from rich.table import Table


def complain(error: PenstockError) -> None:
    """Say on stderr which error it is, what happened, and what to do; no traceback."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text(error.code, style="bold red"))
    for line in error.message.split("; ") if isinstance(error, ConfigInvalid) else [error.message]:
        console.print(Text(f"  {line}"))
    if error.remedy:
        console.print(Text.assemble("  ", ("what to do: ", "bold"), error.remedy))


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table whose cells are text, not markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(columns), pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def show(*tables: Table) -> None:
    """Print tables on stdout."""
    from rich.console import Console

    Console().print(*tables)
