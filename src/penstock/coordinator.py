"""The contract of a store of terms and watermarks. Implementations are in `coordinators/`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.dead_letters import DeadLetters, Parking


@dataclass(frozen=True, slots=True)
class Term:
    """One holder's leadership of one pipeline. A later term has a greater epoch."""

    pipeline: str
    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The work of one claim since its last advance.

    `passed`: changes that passed a dead letter of their key. `trouble`: the error that is being retried.
    """

    delivered: int = 0
    rate: float = 0.0
    dropped: int = 0
    passed: int = 0
    trouble: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The record of a pipeline. `waiting` counts the `dead` letters that wait for others; the other counts are totals.

    `error`: the error of a halted pipeline; `trouble`: the last known error that is being retried.
    """

    epoch: int = 0
    holder: str | None = None
    is_held: bool = False
    standbys: int = 0
    watermarks: Mapping[Lane, Watermark] = field(default_factory=dict)
    advanced_at: datetime | None = None
    delivered: int = 0
    rate: float = 0.0
    dead: int = 0
    waiting: int = 0
    dropped: int = 0
    passed: int = 0
    redriven: int = 0
    error: Mapping[str, str] | None = None
    trouble: Mapping[str, str] | None = None


class Claim(Parking, Protocol):
    """The exclusive right of one task attempt to deliver one lane, and to park its poison."""

    @property
    def watermark(self) -> Watermark:
        """The watermark of the predecessor at the start of this claim."""

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress; without progress, check that the claim is current. Raises TermLost, StateUnavailable."""


class Candidate(Protocol):
    """The candidacy of one process for one pipeline; used by one thread."""

    def campaign(self) -> Term | None:
        """Take the term if it is free, or its holder has died or gone silent; otherwise return None at once."""

    def renew(self) -> None:
        """Extend the term. Raises TermLost, StateUnavailable."""

    def resign(self) -> None:
        """Give the term back, so that a standby does not wait."""

    def close(self) -> None:
        """Disconnect. A held term ends at once, as by `resign`, or when it has been silent for `ttl`."""


class Coordinator(Protocol):
    """Frozen settings of a store of terms and watermarks.

    - At most one term of a pipeline is current; epochs only grow. A holder that died is replaced at once, and one that went silent
      after `ttl` on the monotonic clock of the observer.
    - A watermark moves forward only, and only by the current claim: any other `(epoch, attempt)` raises TermLost and changes
      nothing.
    - A claim waits for the process that holds the same lane under the same term, and briefly for one of an older term.
    - These promises hold after kill -9 of any process at any moment.
    """

    @property
    def address(self) -> str:
        """The address of the store, without secrets."""

    @property
    def ttl(self) -> float:
        """Seconds without a renewal after which a holder is silent."""

    @property
    def renewal(self) -> float:
        """Seconds between two renewals: several within the time for which a holder trusts its term."""

    def identity(self) -> str | None:
        """The random id that this store got at its creation, and that its copies share; None before."""

    def examine(self) -> None:
        """Raise the error that prevents a pipeline from using this store; changes nothing."""

    def candidate(self, pipeline: str, holder: str) -> Candidate:
        """A candidacy for a pipeline."""

    def claim(self, term: Term, lane: Lane, attempt: int) -> AbstractContextManager[Claim]:
        """Hold a lane, which has a watermark; blocks while a predecessor of this term holds it."""

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """The watermark of a lane; None for a new pipeline."""

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of lanes, also backward, in one step: at a first start, or for an operator. Raises TermLost.

        The step drops the lanes `instead_of` that are not in `marks`; their delivered changes stay counted.
        """

    def forget(self, term: Term) -> None:
        """Remove the watermarks, letters and counts of a pipeline, but not its epoch. Raises TermLost."""

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error of a halted pipeline under its term. A new term clears it."""

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record, on every lane, the error that is being retried; an advance of a claim replaces it. Raises TermLost."""

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """The record of a pipeline."""


class State(Coordinator, DeadLetters, Protocol):
    """The store that the key `state` of a pipeline names: it implements both contracts."""
