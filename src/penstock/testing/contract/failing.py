"""Sinks whose destination fails for a while, or refuses some changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import timedelta
from functools import partialmethod
from threading import Lock
from typing import Any, Literal

import pytest

from penstock.coordinators.kafka.letters import Letters
from penstock.coordinators.letters import take
from penstock.errors import PenstockError
from penstock.letter import DeadLetter, in_order
from penstock.poison.condemned import Circumstances
from penstock.poison.parked_keys import Hold
from penstock.poison.policy import Poison
from penstock.retry import Retry
from penstock.rows import Row
from penstock.sink import Delivery, Sink
from penstock.testing.contract.sink import KEYS, SinkContract, SinkRig, position_of

REFUSED = 5
"""The position of the change that a destination refuses."""


class RetryRig(SinkRig):
    """The sink retries at least every second, for ever."""

    @abstractmethod
    def unavailable(self) -> AbstractContextManager[object]:
        """A block in which the destination accepts nothing."""


class RetryContract(SinkContract):
    """Every sink with retries."""

    def test_changes_that_fail_are_sent_again_until_they_are_accepted(self, rig: RetryRig) -> None:
        """While the destination is unavailable nothing is delivered; afterwards every change arrives, in order per key."""
        with closing(rig.open()) as delivery:
            with rig.unavailable():
                rig.offer(delivery, range(1, 21), self.patience)
                assert not delivery.drain(0.3), "drained, although the destination accepts nothing"
                assert delivery.delivered() is None
            assert delivery.drain(self.patience)
        self.assert_arrived(rig, range(1, 21))

    def test_closing_ends_the_tries(self, rig: RetryRig) -> None:
        """`close` returns while the destination is unavailable, and nothing arrives afterwards."""
        with rig.unavailable():
            delivery = rig.open()
            rig.offer(delivery, range(1, 21), self.patience)
            delivery.close()
        assert delivery.delivered() is None
        self.assert_arrived(rig, [])


class PoisonRig(SinkRig):
    """A sink whose destination can refuse changes."""

    @abstractmethod
    def refuse(self, position: int) -> None:
        """From now on the destination refuses the change at this position, alone or with others."""

    @abstractmethod
    def sink_with(self, retry: Retry) -> Sink:
        """The sink with these settings of `retry`."""


class MemoryParking:
    """Dead letters in memory, by the steps that all kinds of state share."""

    def __init__(self) -> None:
        self.storage, self._lock = Letters(), Lock()

    def _take(self, step: str, letters: Sequence[DeadLetter]) -> list[bool]:
        with self._lock:
            return [bool(one) for one in take(step, self.storage, letters) or ()]

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters."""
        with self._lock:
            return self.storage.holds(rows)

    park: Any = partialmethod(_take, "park")
    follow: Any = partialmethod(_take, "follow")
    give_back: Any = partialmethod(_take, "give_back")

    def secure(self) -> None:
        """Memory does not outlive a loss of power."""


class PoisonContract(SinkContract):
    """Every sink that bisects refused batches: those over `penstock.delivery`."""

    def deliver(self, rig: PoisonRig, then: Literal["halt", "drop", "dead-letter"], parking: MemoryParking) -> Delivery:
        """A delivery to a destination that refuses one change."""
        rig.refuse(REFUSED)
        given = rig.assignment()
        about = Circumstances(given.pipeline, given.lane, given.incarnation, given.epoch, lambda events: None)
        retry = Retry(tries=2, min=timedelta(milliseconds=1), max=timedelta(milliseconds=2), then=then)
        return rig.open(replace(given, poison=Poison(then, "wait", parking, about)), rig.sink_with(retry))

    def assert_all_but(self, missing: Iterable[int], rig: PoisonRig, then: Literal["drop", "dead-letter"]) -> MemoryParking:
        """All others arrive, and `delivered` passes those that are missing."""
        parking = MemoryParking()
        with closing(self.deliver(rig, then, parking)) as delivery:
            _offer_and_drain(rig, delivery, self.patience)
            assert position_of(delivery) == 30
        self.assert_arrived(rig, sorted(set(range(1, 31)) - set(missing)))
        return parking

    def test_a_refused_change_halts_the_delivery(self, rig: PoisonRig) -> None:
        """With `then: halt` every call after a refused change raises an error, and `delivered` stays before that change."""
        with closing(self.deliver(rig, "halt", MemoryParking())) as delivery:
            for _ in range(2):
                with pytest.raises(PenstockError):
                    _offer_and_drain(rig, delivery, self.patience)
            assert position_of(delivery) < REFUSED
        assert REFUSED not in (rig.positions() or ())

    def test_a_refused_change_and_its_key_are_parked(self, rig: PoisonRig) -> None:
        """With `then: dead-letter` a refused change and the later changes of its key are parked, and all others arrive."""
        parking = self.assert_all_but(range(REFUSED, 31, KEYS), rig, "dead-letter")
        assert [letter.change.position for letter in in_order(parking.storage.all())] == [*range(REFUSED, 31, KEYS)]

    def test_a_refused_change_is_dropped(self, rig: PoisonRig) -> None:
        """With `then: drop` a refused change is dropped, and all others arrive."""
        self.assert_all_but([REFUSED], rig, "drop")


def _offer_and_drain(rig: SinkRig, delivery: Delivery, patience: float) -> None:
    rig.offer(delivery, range(1, 31), patience)
    assert delivery.drain(patience)
