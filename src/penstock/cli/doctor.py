"""`penstock doctor`: what keeps pipelines from running here, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.finding import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Pipeline files; none: this machine alone.")
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Also POST an empty batch to the webhook.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also start Spark, run a throw-away query, and parse the transform.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Check Java, Spark, Python workers and disk, and all that pipelines need: database, capture, state, endpoint, certificates.

    Changes nothing, and sends nothing unless told to. Exit code 1 if a check failed.

    Examples: `penstock doctor`, `penstock doctor orders.yaml --probe`
    """
    from penstock.checkup.examination import examine, examine_machine
    from penstock.cli import terminal
    from penstock.finding import Verdict

    found = [*examine_machine(), *examine(files or [], probes=probe, deep=deep)]
    is_well = all(one.verdict is not Verdict.FAILED for one in found)
    if as_json:
        terminal.say_json({"healthy": is_well, "checks": [one.facts() for one in found]})
    else:
        _show(found)
    if not is_well:
        raise typer.Exit(1)


def _show(found: Sequence[Finding]) -> None:
    from rich.table import Table

    from penstock.cli import terminal

    for about in dict.fromkeys(one.about for one in found):
        made = Table(
            title=terminal.plain(about), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False
        )
        made.add_column(no_wrap=True)
        made.add_column(no_wrap=True)
        made.add_column(overflow="fold")
        for one in found:
            if one.about == about:
                said = terminal.plain(one.said)
                if one.remedy:
                    said.append("\nwhat to do: ", "bold").append_text(terminal.plain(one.remedy))
                made.add_row(terminal.plain(one.check), terminal.plain(one.verdict.value, _COLOURS[one.verdict.value]), said)
        terminal.show(made)
