"""`penstock doctor`: check the machine and pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import terminal
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.finding import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Pipeline files. Without files, only the machine is checked.")
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Also POST an empty batch to the webhook.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also start Spark, run a test query and parse the transform.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check Java, Spark, Python workers, disk, and the database, capture, state, endpoint and certificates of pipelines.

    Changes nothing, and sends nothing without --probe. Exit code 1 if a check failed.

    Examples: `penstock doctor`, `penstock doctor orders.yaml --probe`
    """
    from penstock.checkup.examination import examine, examine_machine
    from penstock.finding import Severity

    found = [*examine_machine(), *examine(files or [], probes=probe, deep=deep)]
    is_well = all(one.verdict is not Severity.FAILED for one in found)
    if as_json:
        terminal.say_json({"healthy": is_well, "checks": [one.facts() for one in found]})
    else:
        _show(found)
    if not is_well:
        raise typer.Exit(1)


def _show(found: Sequence[Finding]) -> None:
    from rich.table import Column

    columns = (Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold"))
    for about in dict.fromkeys(one.about for one in found):
        rows = [_row(one) for one in found if one.about == about]
        terminal.show(terminal.table(columns, rows, about, has_header=False))


def _row(one: Finding) -> tuple[str, Text, Text]:
    said = terminal.plain(one.said)
    if one.remedy:
        said.append("\nwhat to do: ", "bold").append_text(terminal.plain(one.remedy))
    return one.check, terminal.plain(one.verdict.value, _COLOURS[one.verdict.value]), said
