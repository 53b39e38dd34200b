"""Who may carry a pipeline, and how far it has come. Implementations are in `coordinators/`."""

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
    """What one claim has done since its last advance; `passed`: changes that went on past a dead letter of their key.

    `trouble`: what keeps it from getting on just now.
    """

    delivered: int = 0
    rate: float = 0.0
    dropped: int = 0
    passed: int = 0
    trouble: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PipelineState:
    """All that the store knows of a pipeline. `waiting` counts the `dead` letters that wait for others; the rest are totals.

    `error`: what it has halted with; `trouble`: what it was last seen to try again.
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
    """The sole right to deliver on one lane, for one attempt of one task; what is poison there, it parks."""

    @property
    def watermark(self) -> Watermark:
        """Where the predecessor had come to when this claim began."""

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress; also without any, to learn whether the claim still stands. Raises TermLost, StateUnavailable."""


class Candidate(Protocol):
    """One process's standing for one pipeline; not shared between threads."""

    def campaign(self) -> Term | None:
        """Take the term if nobody holds it, or its holder has died or fallen silent; otherwise None, at once."""

    def renew(self) -> None:
        """Say that the holder lives. Raises TermLost, StateUnavailable."""

    def resign(self) -> None:
        """Give the term back, so that a standby need not wait."""

    def close(self) -> None:
        """Leave without resigning what is held."""


class Coordinator(Protocol):
    """Frozen settings of a store of terms and watermarks.

    - At most one term of a pipeline is current; epochs only grow; a holder that died is replaced at once, one that fell silent
      after `ttl` on the observer's own monotonic clock.
    - A watermark moves forward only, and only by the current claim: any other `(epoch, attempt)` raises TermLost and changes
      nothing.
    - A claim waits for the process that holds the same lane under the same term; one of an older term gets a short grace only.
    - All of it survives kill -9 of any process at any moment.
    """

    @property
    def address(self) -> str:
        """Where it is, as people may see it: without secrets."""

    @property
    def ttl(self) -> float:
        """Seconds without a renewal after which a holder counts as silent."""

    def identity(self) -> str | None:
        """The random id of this store, which it keeps from its creation on, and which its copies have too; None before."""

    def examine(self) -> None:
        """Raise the error that would keep a pipeline from using this store; nothing is changed."""

    def candidate(self, pipeline: str, holder: str) -> Candidate:
        """Stand for a pipeline."""

    def claim(self, term: Term, lane: Lane, attempt: int) -> AbstractContextManager[Claim]:
        """Hold a lane; blocks while a predecessor of this term still does. Needs a watermark that was placed."""

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """How far this lane has been delivered; None for a new pipeline."""

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of one or more lanes, also backwards: a first start, or a decision of an operator. Raises TermLost.

        All of them are set in one step, or none. The step drops the lanes `instead_of` that `marks` does not have; the number of
        changes that those have delivered stays counted.
        """

    def forget(self, term: Term) -> None:
        """Remove all watermarks and letters of a pipeline, and what was counted; its epochs go on growing. Raises TermLost."""

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error this pipeline stopped with, under its term. A new term clears it."""

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record, on every lane, what fails and is tried again; a claim says whether it still does. Raises TermLost."""

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """What is known of a pipeline, for people and for the next holder."""


class State(Coordinator, DeadLetters, Protocol):
    """A store that a pipeline names under `state`: it implements both contracts."""
