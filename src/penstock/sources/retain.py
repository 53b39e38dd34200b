"""The changes that a log keeps for registered pipelines: pure decisions, for logs whose positions count their changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.change import Lane
from penstock.owner import Owner
from penstock.settings import refuse, settings
from penstock.source import GONE, Reader
from penstock.text.duration import Duration


@settings
class Retain:
    """The delivered changes that stay for a rewind, and the limits of the log for pipelines that are gone."""

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
    """A registered pipeline; `silent`: seconds since its last note, `history`: seconds for which delivered changes are kept."""

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
        """Whether it is silent for longer than a running one can be, by the wall clock."""
        return self.silent >= GONE

    def shown(self, known: Iterable[Registration], head: int) -> Reader:
        """The registration as the contract shows it."""
        kept = kept_for(self, known, head)
        return Reader(self.pipeline, self.position, self.silent, kept, self.is_gone, self.is_released, self.owner)


class Sightings:
    """The last note of each registration, and the time at which this process first saw it, by its monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], tuple[float, float]] = {}

    def seconds(self, address: str, one: Registration, now: float) -> float:
        """The seconds for which this note has not changed; 0 for a new one."""
        noted_at, since = self._seen.get((address, *one.name), (None, now))
        if noted_at != one.noted_at:
            since = now
            self._seen[address, one.pipeline, one.lane] = one.noted_at, now
        return now - since


@dataclass(frozen=True, slots=True)
class Registrant:
    """A pipeline on a lane, and the state to which its registration belongs."""

    pipeline: str
    lane: Lane
    owner: Owner | None = None

    def at(self, position: int, retain: Retain) -> Registration:
        """Its registration at a position."""
        return Registration(self.pipeline, self.lane, position, 0.0, history=retain.history.total_seconds(), owner=self.owner)


def kept_for(one: Registration, known: Iterable[Registration], head: int) -> int:
    """The number of changes that the log keeps for this pipeline alone."""
    living = [other.position for other in known if not (other.is_gone or other.is_released or other.name == one.name)]
    return 0 if one.is_released else max(0, min(living, default=head) - one.position)


def is_overdue(one: Registration, head: int, watched: float, retain: Retain) -> bool:
    """Whether a pipeline that is gone exceeds the limits; `watched`: seconds without a new note, by a monotonic clock."""
    is_gone = watched >= GONE and not one.is_released
    return is_gone and (head - one.position > retain.changes or one.silent >= retain.age.total_seconds())


def prunable_below(needed: Iterable[int], first: int, recent: int | None, batch: int) -> int:
    """The position below which no change is needed; `recent`: the first of the history, which is pruned in batches."""
    lowest = min(needed)
    if recent is None or recent >= lowest:
        return lowest
    return recent if recent - first >= batch else first
