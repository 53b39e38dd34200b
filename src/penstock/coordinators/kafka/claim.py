"""The exclusive right to deliver one lane."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.claim import LaneClaim, require_free
from penstock.coordinators.holder import is_gone, sight
from penstock.coordinators.kafka import seats
from penstock.coordinators.kafka.letters import written
from penstock.coordinators.kafka.log import StateLog
from penstock.coordinators.kafka.state_machine import LaneEntry, StateMachine
from penstock.cursor import Watermark
from penstock.errors import StateUnavailable
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

TICK = 0.02


def mark(watermark: Watermark) -> list[Any]:
    """A watermark as a record stores it."""
    return [watermark.cursor, watermark.position, watermark.delivered]


class KafkaClaim(LaneClaim):
    """A lane under (epoch, attempt)."""

    def __init__(self, log: StateLog, term: Term, lane: Lane, attempt: int, seat: str) -> None:
        super().__init__(term, lane, attempt)
        self._log, self._seat = log, seat
        self._mine: dict[str, Any] = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "attempt": attempt}
        self._counted = [0, 0, 0]  # since the claim began: sums are counted once, even if an answer is lost
        is_granted = log.write("register", seat=seat, **self._mine)
        self._begin(log.look(lambda machine: machine.of(term.pipeline).lanes[lane].watermark) if is_granted else None)

    def close(self) -> None:
        """Release the lane."""
        with suppress(StateUnavailable):
            self._log.write("release", **self._mine)

    def _holds(self, rows: Collection[Row] | None) -> Sequence[Hold]:
        return self._log.look(lambda machine: machine.of(self._term.pipeline).letters.holds(rows))

    def _take(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        answer = self._log.write(step, letters=[written(letter) for letter in letters], **self._mine)
        if answer is False or answer is None:
            raise self._lost()
        return answer

    def _stands(self) -> bool:
        return self._log.look(lambda machine: machine.claims(**self._mine))

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        fresh = (tally.delivered, tally.dropped, tally.passed)
        counted = [before + more for before, more in zip(self._counted, fresh, strict=True)]
        facts = {"mark": mark(watermark), "counted": counted, "rate": tally.rate, "at": time.time()}
        stands = self._log.write("advance", **facts, trouble=tally.trouble, **self._mine)
        seats.touch(self._seat)
        self._counted = counted
        return bool(stands)


@contextmanager
def claimed(log: StateLog, term: Term, lane: Lane, attempt: int, *, grace: float, ttl: float) -> Iterator[KafkaClaim]:
    """A claim, once every predecessor has ended or its grace is over."""
    seat = seats.new_seat()
    with seats.sit(seat):
        _outwait(log, term, lane, attempt, grace=grace, ttl=ttl)
        with closing(KafkaClaim(log, term, lane, attempt, seat)) as claim:
            yield claim


def _outwait(log: StateLog, term: Term, lane: Lane, attempt: int, *, grace: float, ttl: float) -> None:
    """Wait for the holder of the lane: as long as it lives under this term, up to `grace` under an older one."""
    began, sighting = time.monotonic(), None
    while True:
        found, is_led = log.look(lambda machine: _seen(machine, term, lane))
        require_free(term, lane, attempt, (found.epoch, found.attempt) if found else None, is_led=is_led)
        assert found
        now = time.monotonic()
        sighting = sight(sighting, found.epoch, found.beat, now)
        is_free = found.seat is None or is_gone(sighting, seats.is_alive(found.seat), now, ttl)
        if is_free or (found.epoch < term.epoch and now - began >= grace):
            return
        time.sleep(TICK)


def _seen(machine: StateMachine, term: Term, lane: Lane) -> tuple[LaneEntry | None, bool]:
    entry = machine.of(term.pipeline)
    return replace(entry.lanes[lane]) if lane in entry.lanes else None, entry.is_led(term.epoch)
