"""The progress of a scan of tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.capture import Progress


@contextmanager
def scanning() -> Iterator[Progress]:
    """One bar per table on a terminal; no output elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from penstock.text.printable import printable

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def show(table: str, done: int, of: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(printable(table))
            bars.update(tasks[table], completed=done, total=of)

        yield show
