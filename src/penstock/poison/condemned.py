"""Changes that cannot be delivered, and the events that report them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.change import Change, Lane
from penstock.errors import PenstockError
from penstock.event import ChangeDropped, ChangeParked, ChangesParked, Event
from penstock.letter import DeadLetter

Then = Literal["halt", "drop", "dead-letter"]
"""What becomes of poison."""

IN_A_ROW = 10
"""So many changes in a row are poison; if then the next one fails too, it is not the changes' fault."""

GATHERED = 200
"""So many letters are parked together at most: each time costs more than the letters."""

TOLD = 5
"""So many of those that are parked together are told of one by one: the others would only flood the log, and the store has them."""

_SHOWN = 200


class Condemned(NamedTuple):
    """A change that is poison, why, and whether a later one of its rows has arrived nevertheless.

    `is_refused`: it has certainly not arrived itself, whenever it was sent.
    """

    change: Change
    error: PenstockError
    is_overtaken: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where a change was condemned, and whom to tell, of many at once."""

    pipeline: str
    lane: Lane
    incarnation: str
    epoch: int
    tell: Callable[[Sequence[Event]], None]


def parked(pipeline: str, letters: Sequence[DeadLetter]) -> list[Event]:
    """The events of letters that were parked in one step: some of them one by one, the others as a sum."""
    told = [event_of(ChangeParked, pipeline, letter.change, letter.code, letter.message) for letter in letters[:TOLD]]
    return [*told, ChangesParked(pipeline=pipeline, changes=len(letters) - TOLD)] if len(letters) > TOLD else told


def event_of(kind: type[ChangeParked | ChangeDropped], pipeline: str, change: Change, code: str, message: str) -> Event:
    """The event of one change, with its long parts cut."""
    return kind(
        pipeline=pipeline,
        position=change.position,
        table=change.table,
        key=change.key_text[:_SHOWN],
        code=code,
        message=message[: 2 * _SHOWN],
    )
