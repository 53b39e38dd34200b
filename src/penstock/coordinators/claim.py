"""The part that the claims of all kinds of state share: when progress is written, and when a claim cannot succeed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.cursor import Watermark
from penstock.errors import StateLost, TermLost
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

TOUCH = 1.0
"""Seconds between two writes of a lane without progress: they show waiting processes that its claim lives."""


@dataclass(frozen=True, slots=True)
class Written:
    """The last write of a claim, and its time by the monotonic clock."""

    watermark: Watermark
    trouble: Mapping[str, str] | None
    at: float

    def suffices(self, watermark: Watermark, tally: Tally, now: float) -> bool:
        """Whether no write is needed: nothing has changed, and the last write is recent."""
        has_changed = tally.delivered or tally.dropped or tally.passed or tally.trouble != self.trouble
        return not has_changed and watermark == self.watermark and now - self.at < TOUCH


def require_free(term: Term, lane: Lane, attempt: int, last: tuple[int, int] | None, *, is_led: bool) -> None:
    """Raise StateLost or TermLost if a claim cannot succeed; `last`: epoch and attempt of the last claim of the lane."""
    if last is None:
        raise StateLost(f"lane {lane} of {term.pipeline} has no watermark", "start the pipeline again")
    if not is_led or last >= (term.epoch, attempt):
        raise lost(term, lane, attempt)


def lost(term: Term, lane: Lane, attempt: int) -> TermLost:
    """The error of a claim that is not the current one."""
    return TermLost(f"attempt {attempt} in term {term.epoch} of {term.pipeline} no longer holds lane {lane}")


class LaneClaim(ABC):
    """A lane under (epoch, attempt). Any thread may call: a store takes one step at a time."""

    watermark: Watermark

    def __init__(self, term: Term, lane: Lane, attempt: int) -> None:
        self._term, self._lane, self._attempt = term, lane, attempt
        self._turn = Lock()

    def _begin(self, watermark: Watermark | None) -> None:
        """Begin at the watermark of the lane; None means that the claim was not granted. Raises TermLost."""
        if not watermark:
            raise self._lost()
        self.watermark = watermark
        self._written = Written(self.watermark, None, time.monotonic())

    @abstractmethod
    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        """Write progress; False if the claim is no longer the current one."""

    @abstractmethod
    def _stands(self) -> bool:
        """Whether the claim is the current one."""

    @abstractmethod
    def _take(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        """Take a step with dead letters. Raises TermLost."""

    @abstractmethod
    def _holds(self, rows: Collection[Row] | None) -> Sequence[Hold]:
        """The letters of the pipeline."""

    def _recover(self) -> None:  # noqa: B027 - only some kinds do something
        """Repair the connection to the store, where a kind can."""

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress, or check whether the claim still stands. Raises TermLost, StateUnavailable."""
        with self._turn:
            self._recover()
            now = time.monotonic()
            if self._written.suffices(watermark, tally, now):
                stands = self._stands()
            else:
                stands = self._write(watermark, tally)
                self._written = Written(watermark, tally.trouble, now)
            if not stands:
                raise self._lost()

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline, or those that share one of these rows."""
        with self._turn:
            self._recover()
            return self._holds(rows)

    def park(self, letters: Sequence[DeadLetter]) -> None:
        """Store these letters."""
        self._alter("park", letters)

    def follow(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Park those of these that come after a letter of their key; whether each is parked."""
        parked: Sequence[bool] = self._alter("follow", letters)
        return parked

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """Remove the marks of these from the letters that they overtook first."""
        self._alter("give_back", letters)

    def secure(self) -> None:  # noqa: B027 - only some kinds do something
        """Make parked letters durable, where a kind does not do that when it parks them."""

    def _alter(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        with self._turn:
            self._recover()
            return self._take(step, letters)

    def _lost(self) -> TermLost:
        return lost(self._term, self._lane, self._attempt)
