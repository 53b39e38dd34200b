"""The sole right to deliver on one lane."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.kafka import letters, seats
from penstock.coordinators.kafka.book import Book, LaneEntry
from penstock.coordinators.kafka.log import Log
from penstock.coordinators.observation import Sighting, Verdict, judge, sight
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateLost, StateUnavailable, TermLost
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

TICK = 0.02
TOUCH = 1.0
"""Seconds between two records of a lane on which nothing moves: whoever waits for it on another machine sees that it lives."""


def mark(watermark: Watermark) -> list[Any]:
    """A watermark as records have it."""
    return [watermark.cursor, watermark.position, watermark.delivered]


def watermark_of(lane: LaneEntry) -> Watermark:
    """The watermark of a lane."""
    return Watermark(Cursor(lane.cursor), lane.position, lane.delivered)


class KafkaClaim:
    """A lane under (epoch, attempt)."""

    def __init__(self, log: Log, term: Term, lane: Lane, attempt: int, seat: str) -> None:
        self._log, self._term, self._lane, self._attempt, self._seat = log, term, lane, attempt, seat
        self._mine: dict[str, Any] = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "attempt": attempt}
        if not log.write("register", seat=seat, **self._mine):
            raise lost(term, lane, attempt)
        self.watermark = self._recorded = log.look(lambda book: watermark_of(book.of(term.pipeline).lanes[lane]))
        self._trouble: Mapping[str, str] | None = None
        self._written_at = time.monotonic()
        self._counted = [0, 0, 0]  # since the claim began, so that nothing is counted twice if an answer is lost
        self._turn = Lock()

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress, or learn whether the claim still stands. Raises TermLost, StateUnavailable."""
        with self._turn:
            fresh = (tally.delivered, tally.dropped, tally.passed)
            has_news = watermark != self._recorded or any(fresh) or tally.trouble != self._trouble
            if not has_news and time.monotonic() - self._written_at < TOUCH:
                stands = self._log.look(lambda book: book.claims(**self._mine))
            else:
                counted = [before + more for before, more in zip(self._counted, fresh, strict=True)]
                facts = {"mark": mark(watermark), "counted": counted, "rate": tally.rate, "at": time.time()}
                stands = self._log.write("advance", **facts, trouble=tally.trouble, **self._mine)
                seats.touch(self._seat)
                self._counted, self._recorded, self._trouble = counted, watermark, tally.trouble
                self._written_at = time.monotonic()
            if not stands:
                raise lost(self._term, self._lane, self._attempt)

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline; or those that share one of these rows."""
        with self._turn:
            return self._log.look(lambda book: book.of(self._term.pipeline).letters.holds(rows))

    def park(self, parked: Sequence[DeadLetter]) -> None:
        """Keep these letters."""
        self._ask("park", parked)

    def follow(self, behind: Sequence[DeadLetter]) -> Sequence[bool]:
        """Park those of these that come behind a letter of their key."""
        answer: Sequence[bool] = self._ask("follow", behind)
        return answer

    def give_back(self, returned: Sequence[DeadLetter]) -> None:
        """What these were the first to be sent past they have not overtaken."""
        self._ask("give_back", returned)

    def secure(self) -> None:
        """They are durable as soon as they are parked."""

    def close(self) -> None:
        """Let the lane go."""
        with suppress(StateUnavailable):
            self._log.write("release", **self._mine)

    def _ask(self, do: str, some: Sequence[DeadLetter]) -> Any:
        with self._turn:
            answer = self._log.write(do, letters=[letters.written(letter) for letter in some], **self._mine)
            if answer is False or answer is None:
                raise lost(self._term, self._lane, self._attempt)
            return answer


@contextmanager
def claimed(log: Log, term: Term, lane: Lane, attempt: int, *, grace: float, ttl: float) -> Iterator[KafkaClaim]:
    """A claim, once every predecessor has drawn its last breath, or had its grace."""
    seat = seats.new_seat()
    held = seats.sit(seat)
    try:
        _outwait(log, term, lane, attempt, grace=grace, ttl=ttl)
        claim = KafkaClaim(log, term, lane, attempt, seat)
        try:
            yield claim
        finally:
            claim.close()
    finally:
        held.release()


def _outwait(log: Log, term: Term, lane: Lane, attempt: int, *, grace: float, ttl: float) -> None:
    """Wait for whoever holds the lane: as long as it lives if it is of this term, for a while if it is of an older one."""
    began, sighting = time.monotonic(), None
    while True:
        found, is_led = log.look(lambda book: _seen(book, term, lane))
        if not found:
            raise StateLost(f"lane {lane} of {term.pipeline} has no watermark", "start the pipeline again")
        if not is_led or (found.epoch, found.attempt) >= (term.epoch, attempt):
            raise lost(term, lane, attempt)
        now = time.monotonic()
        sighting = sight(sighting, found.epoch, found.beat, now)
        if _is_gone(found, sighting, now, ttl) or (found.epoch < term.epoch and now - began >= grace):
            return
        time.sleep(TICK)


def _is_gone(lane: LaneEntry, sighting: Sighting, now: float, ttl: float) -> bool:
    is_alive = seats.is_alive(lane.seat) if lane.seat else None
    return judge(sighting, lane.seat is None, is_alive, now, ttl) is not Verdict.HELD


def _seen(book: Book, term: Term, lane: Lane) -> tuple[LaneEntry | None, bool]:
    entry = book.of(term.pipeline)
    return replace(entry.lanes[lane]) if lane in entry.lanes else None, entry.is_led(term.epoch)


def lost(term: Term, lane: Lane, attempt: int) -> TermLost:
    """The error of a claim that is not the current one."""
    return TermLost(f"attempt {attempt} of term {term.epoch} no longer holds lane {lane} of {term.pipeline}")
