"""The output of `capture verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli import terminal

if TYPE_CHECKING:
    from penstock.capture import Capture, Comparison, Verification


def show(found: Verification, capture: Capture) -> None:
    """Print a line for each table, the first differences, and the remedy."""
    rows = [[one.table, one.state, str(one.compared), str(one.differing), "; ".join(_remarks(one))] for one in found.tables]
    terminal.show(terminal.table(["TABLE", "CAPTURE", "KEYS COMPARED", "DIFFERENT", ""], rows))
    for one in found.tables:
        for difference in one.differences:
            column = f" in column {difference.column}" if difference.column else ""
            terminal.say(f"{one.table} {difference.key} {difference.what}{column}")
        if one.differing > len(one.differences):
            terminal.say(f"{one.table}: {one.differing - len(one.differences)} more")
    for one in found.tables:
        if not one.is_equal:
            terminal.say(capture.repair_command(found.database, one.table))


def _remarks(one: Comparison) -> Iterator[str]:
    if one.why:
        yield one.why
    if one.unjudged:
        yield f"{one.unjudged} keys not compared: touched while capture was suspended, or their last change is not reliable"
    if one.unmentioned and not one.is_whole:
        yield f"{one.unmentioned} rows not compared: the log does not reach back to their last change"
    if one.is_whole:
        yield "all rows compared: the log has a rescan"
