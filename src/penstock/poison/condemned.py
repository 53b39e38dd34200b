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
"""The effect of poison."""

IN_A_ROW = 10
"""Most changes in a row that count as poison; if the next one fails too, the cause is not the changes."""

GATHERED = 200
"""Most letters that are parked in one step: each step costs more than the letters."""

TOLD = 5
"""Number of letters of one step that get an event each; one event counts the others, and the store has all of them."""

_SHOWN = 200


class Condemned(NamedTuple):
    """A poison change. `is_overtaken`: a later change of its rows has arrived. `is_refused`: none of its tries has."""

    change: Change
    error: PenstockError
    is_overtaken: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances in which changes are condemned. `emit` receives several events at once."""

    pipeline: str
    lane: Lane
    incarnation: str
    epoch: int
    emit: Callable[[Sequence[Event]], None]


def parked(pipeline: str, letters: Sequence[DeadLetter]) -> list[Event]:
    """The events of letters that were parked in one step: one for each of the first, and one for the number of the others."""
    events = [event_of(ChangeParked, pipeline, letter.change, letter.code, letter.message) for letter in letters[:TOLD]]
    return [*events, ChangesParked(pipeline=pipeline, changes=len(letters) - TOLD)] if len(letters) > TOLD else events


def event_of(kind: type[ChangeParked | ChangeDropped], pipeline: str, change: Change, code: str, message: str) -> Event:
    """The event of one change, with key and message truncated."""
    return kind(
        pipeline=pipeline,
        position=change.position,
        table=change.table,
        key=change.key_text[:_SHOWN],
        code=code,
        message=message[: 2 * _SHOWN],
    )
