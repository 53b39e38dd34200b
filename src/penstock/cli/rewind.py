"""`penstock rewind`: move the watermark of a pipeline back or forward."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import terminal
from penstock.cli.options import File, Yes
from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.running.admin import Move


def rewind(
    file: File,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION|TIME|beginning|now",
            help="The last position that is not delivered again; or a time, such as 2026-01-31T12:00:00Z (UTC without a zone) or "
            "2h (ago): delivery starts with the first change at that time or later.",
        ),
    ],
    skip: Annotated[bool, typer.Option("--skip", help="Permit a move forward; the changes between are never delivered.")] = False,
    yes: Yes = False,
) -> None:
    """Deliver changes again from an earlier position. The pipeline must not run.

    Shows the number of changes to deliver again, and asks for confirmation. Clears the error that stopped the pipeline.

    Examples: `penstock rewind orders.yaml --to 2h`, `penstock rewind orders.yaml --to 1200 --yes`
    """
    from penstock.running import admin

    pipeline = penstock.load(file, delivers=False)
    moves = admin.plan(pipeline, to, datetime.now(UTC))
    _refuse_to_skip(moves, skip)
    _show(pipeline.name, moves)
    terminal.confirm("Do it?", yes)
    admin.rewind(pipeline, moves)
    terminal.say(f"{pipeline.name} continues after position {moves[0].new.position} when it runs: penstock run {file}")


def _refuse_to_skip(moves: Sequence[Move], skip: bool) -> None:
    for move in moves:
        if move.is_skip and not skip:
            ahead = f"position {move.new.position} is after the watermark at {move.old.position}"
            raise ConfigInvalid(f"{ahead}: {_number(move)} changes would never be delivered", "add --skip to skip them")


def _number(move: Move) -> str:
    return "some" if move.changes is None else str(move.changes)


def _show(name: str, moves: Sequence[Move]) -> None:
    rows = [
        [
            name,
            str(move.old.position),
            str(move.new.position),
            f"{_number(move)} {'SKIPPED' if move.is_skip else 'again'}",
            move.first_at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if move.first_at else "-",
        ]
        for move in moves
    ]
    terminal.show(terminal.table(["PIPELINE", "FROM", "TO", "CHANGES", "FIRST MADE AT"], rows))
