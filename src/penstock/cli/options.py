"""Arguments and options of more than one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Pipeline files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
PrintSql = Annotated[bool, typer.Option("--print-sql", help="Print the SQL and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def group(purpose: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=purpose, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")
