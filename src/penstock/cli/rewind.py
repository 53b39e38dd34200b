"""`penstock rewind`: set a pipeline's watermark back, or forward."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.admin import Move


def rewind(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION|TIME|beginning|now",
            help="The last position that is not delivered again; or a time, such as 2026-01-31T12:00:00Z (UTC if it names no zone) "
            "or 2h (ago): the first change of that time or later comes first.",
        ),
    ],
    skip: Annotated[bool, typer.Option("--skip", help="Allow to go forward, over changes that then are never delivered.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
) -> None:
    """Deliver changes again from an earlier place of the log on; only while nobody runs the pipeline.

    Shows what will be delivered again, and asks. An error that the pipeline stopped with is cleared.

    Examples: `penstock rewind orders.yaml --to 2h`, `penstock rewind orders.yaml --to 1200 --yes`
    """
    from penstock import admin
    from penstock.cli import terminal
    from penstock.config import load

    pipeline = load(file, delivers=False)
    moves = admin.plan(pipeline, to, datetime.now(UTC))
    _refuse_to_skip(moves, skip)
    _show(pipeline.name, moves)
    if not yes:
        terminal.confirm("Do it?")
    admin.rewind(pipeline, moves)
    terminal.say(f"{pipeline.name} goes on behind position {moves[0].new.position} when it is run: penstock run {file}")


def _refuse_to_skip(moves: Sequence[Move], skip: bool) -> None:
    for move in moves:
        if move.is_skip and not skip:
            ahead = f"position {move.new.position} lies ahead of the watermark, which stands at {move.old.position}"
            raise ConfigInvalid(f"{ahead}: {_number(move)} changes would never be delivered", "if that is meant, add --skip")


def _number(move: Move) -> str:
    return "some" if move.changes is None else str(move.changes)


def _show(name: str, moves: Sequence[Move]) -> None:
    from penstock.cli import terminal

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
    terminal.show(terminal.table(None, ["PIPELINE", "FROM", "TO", "CHANGES", "FIRST MADE AT"], rows))
