"""When a holder counts as gone, judged by the observer's own clock. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TRUST = 0.9
"""The part of a ttl for which a holder trusts its term: clocks do not run equally fast."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A beat of a holder, and when this observer first saw it on its own monotonic clock."""

    epoch: int
    beat: int
    since: float


def sight(last: Sighting | None, epoch: int, beat: int, now: float) -> Sighting:
    """The sighting to remember: the last one while epoch and beat stay the same."""
    return last if last and (last.epoch, last.beat) == (epoch, beat) else Sighting(epoch, beat, now)


def is_gone(sighting: Sighting, is_alive: bool | None, now: float, ttl: float) -> bool:
    """Whether a holder is dead or silent. `is_alive`: None if its life cannot be observed."""
    return is_alive is False or now - sighting.since >= ttl


def trusted_until(asked_at: float, ttl: float) -> float:
    """The time until which a holder may trust a renewal that it requested at `asked_at`: before any observer judges it silent."""
    return asked_at + ttl * TRUST
