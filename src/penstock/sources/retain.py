"""What the log keeps, and for whom: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.change import Lane
from penstock.duration import Duration
from penstock.owner import Owner
from penstock.settings import refuse, settings
from penstock.source import GONE, Reader


@settings
class Retain:
    """How much of what was delivered stays for rewinding, and how long the log waits for other pipelines that are gone."""

    history: Duration = timedelta(0)
    changes: int = 1_000_000
    age: Duration = timedelta(days=7)
    then: Literal["keep", "release"] = "keep"

    def __post_init__(self) -> None:
        refuse(
            self.changes < 1 and f"retain.changes is {self.changes}: it must be 1 or more",
            self.age <= timedelta(0) and "retain.age is not positive: write 1h or more",
        )


@dataclass(frozen=True, slots=True)
class Registration:
    """A pipeline as the database knows it.

    `silent`: seconds since it was last noted, by the wall clock. `history`: seconds of delivered changes it wants to be kept.
    """

    pipeline: str
    lane: str
    position: int
    noted_at: float
    silent: float = 0.0
    history: float = 0.0
    is_released: bool = False
    owner: Owner | None = None

    @property
    def name(self) -> tuple[str, str]:
        """Pipeline and lane."""
        return self.pipeline, self.lane

    @property
    def is_gone(self) -> bool:
        """Whether it has been silent for longer than a living one ever is, as far as the wall clock can tell."""
        return self.silent >= GONE

    def shown(self, everybody: Iterable[Registration], head: int) -> Reader:
        """It as the world outside sees it."""
        kept = kept_for(self, everybody, head)
        return Reader(self.pipeline, self.position, self.silent, kept, self.is_gone, self.is_released, self.owner)


class Sightings:
    """The note of each registration, and since when this process has seen it stand still, by its own clock."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], tuple[float, float]] = {}

    def seconds(self, address: str, one: Registration, now: float) -> float:
        """How long this note was seen to stand still; 0 for a new one."""
        noted_at, since = self._seen.get((address, *one.name), (None, now))
        if noted_at != one.noted_at:
            since = now
            self._seen[address, one.pipeline, one.lane] = one.noted_at, now
        return now - since


@dataclass(frozen=True, slots=True)
class Registrant:
    """Who registers: a pipeline on a lane, and the state to which its registration belongs."""

    pipeline: str
    lane: Lane
    owner: Owner | None = None

    def at(self, position: int, retain: Retain) -> Registration:
        """Its registration there."""
        return Registration(self.pipeline, self.lane, position, 0.0, history=retain.history.total_seconds(), owner=self.owner)


def kept_for(one: Registration, everybody: Iterable[Registration], head: int) -> int:
    """How many changes the log holds for this pipeline that none of the living needs."""
    living = [other.position for other in everybody if not (other.is_gone or other.is_released or other.name == one.name)]
    return 0 if one.is_released else max(0, min(living, default=head) - one.position)


def is_overdue(one: Registration, head: int, watched: float, retain: Retain) -> bool:
    """Whether a pipeline that is gone is beyond the bounds; `watched`: seconds for which its note was seen to stand still.

    The wall clock alone would not do: it may step, and machines sleep.
    """
    is_gone = watched >= GONE and not one.is_released
    return is_gone and (head - one.position > retain.changes or one.silent >= retain.age.total_seconds())


def prunable_below(needed: Iterable[int], first: int, recent: int | None, batch: int) -> int:
    """The position below which nobody needs anything; `recent`: where the history begins that somebody wants.

    History grows old all the time, so it goes in batches: a few changes are not worth a commit.
    """
    lowest = min(needed)
    if recent is None or recent >= lowest:
        return lowest
    return recent if recent - first >= batch else first
