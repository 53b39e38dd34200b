"""When a holder counts as gone, judged by the observer's own clock: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

TRUST = 0.9
"""The part of a ttl for which a holder trusts itself: clocks do not run equally fast."""


class Verdict(Enum):
    """What an observer may conclude about a term."""

    FREE = "free"
    HELD = "held"
    DEAD = "dead"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A beat of a holder, and when this observer first saw it on its own monotonic clock."""

    epoch: int
    beat: int
    since: float


def sight(last: Sighting | None, epoch: int, beat: int, now: float) -> Sighting:
    """The sighting to remember: the last one for as long as nothing moves."""
    return last if last and (last.epoch, last.beat) == (epoch, beat) else Sighting(epoch, beat, now)


def judge(sighting: Sighting, is_vacant: bool, is_alive: bool | None, now: float, ttl: float) -> Verdict:
    """Whether the term may be taken; `is_alive` is None where the holder's life cannot be observed from here."""
    if is_vacant:
        return Verdict.FREE
    if is_alive is False:
        return Verdict.DEAD
    return Verdict.SILENT if now - sighting.since >= ttl else Verdict.HELD


def trusted_until(asked_at: float, ttl: float) -> float:
    """Until when a holder may believe in a renewal that it asked for at this moment: earlier than anybody calls it silent."""
    return asked_at + ttl * TRUST
