"""However a leader dies, or seems to: a far side with `penstock.receiver` takes one epoch at a time, and everything, in order."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from deadline import PATIENCE, until
from far_side import FarSide, interleaved, late
from fix_rig import Rig
from program import Program, altered_by, send

DAY = 86400
TERM = "1h"
"""Longer than any wait: a takeover follows from a death, or from a clock that was advanced."""


class Pair:
    """A leader and a warm standby before one far side; whoever is killed is replaced by the next test that needs two."""

    def __init__(self, rig: Rig, far_side: FarSide) -> None:
        self.rig, self.far_side = rig, far_side
        self.clock = rig.folder / "clock"
        self.clock.write_text("0")
        self._team = [self._recruit(), self._recruit()]

    def ready(self) -> tuple[Program, Program]:
        """The leader, and the other one, which stands by, when everything is delivered."""
        self._team = [one if one.is_running() else self._recruit() for one in self._team]
        self.settle()
        leader = until(self.rig.leader, what=self.rig.tails)
        [standby] = [one for one in self._team if one is not leader]
        until(lambda: standby.events("StandingBy"), what=standby.tail)
        until(lambda: self.rig.pipeline_state().standbys, what=standby.tail)
        return leader, standby

    def until_taken_over(self, epoch: int) -> None:
        """Wait until something of a later epoch is accepted; the shop goes on selling."""
        until(lambda: self._has_later(epoch), what=self.rig.tails)

    def settle(self) -> None:
        """Everything that was sold is accepted and recorded."""
        self.rig.shop.sell(3)
        self.rig.until_settled()

    def breaches(self) -> list[str]:
        """What the oracles say of all that was accepted so far."""
        return interleaved(self.far_side.judged) + self.rig.breaches()

    def _has_later(self, epoch: int) -> bool:
        self.rig.shop.sell(1)
        return any(one.is_accepted and one.epoch > epoch for one in list(self.far_side.judged))

    def _recruit(self) -> Program:
        return self.rig.start(env={**altered_by("lies"), "PENSTOCK_TEST_CLOCK": str(self.clock)})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    far_side = FarSide().start()
    with Rig(tmp_path_factory.mktemp("takeover"), receiver=far_side, term=TERM) as rig:
        yield Pair(rig, far_side)


def test_a_clock_that_steps_deposes_nobody(pair: Pair) -> None:
    pair.ready()
    epoch = pair.rig.pipeline_state().epoch
    for step in (DAY, -DAY, 0):
        pair.clock.write_text(str(step))
        pair.settle()
    assert pair.rig.pipeline_state().epoch == epoch
    assert pair.breaches() == []


def test_a_request_of_a_leader_that_was_stopped_past_its_term_is_refused(pair: Pair) -> None:
    leader, standby = pair.ready()
    epoch = pair.rig.pipeline_state().epoch
    for point in ("sink.sending", "writer.advancing"):
        leader.arm(point, "pause")
        pair.rig.shop.sell(3)
        leader.until_reached(point)
    pair.rig.freeze(leader)
    pair.rig.until_outlasted_by(standby)
    pair.until_taken_over(epoch)
    leader.release("sink.sending")
    send(signal.SIGCONT, leader.workers())  # they may send what they have before anybody tells them that their term is over
    until(lambda: late(pair.far_side.judged), what=pair.rig.tails)
    leader.disarm()
    send(signal.SIGCONT, leader.tree())
    leader.until_event("TermGone")
    pair.settle()
    assert pair.rig.leader() is standby
    assert pair.breaches() == []


def test_a_leader_whose_state_store_refuses_makes_room_for_one_that_can_use_it(pair: Pair) -> None:
    leader, standby = pair.ready()
    epoch, lost = pair.rig.pipeline_state().epoch, len(leader.events("TermGone"))
    leader.arm("state.refusing", "refuse")
    pair.rig.outlast(leader)
    leader.until_event("TermGone", count=lost + 1)
    pair.rig.until_outlasted_by(standby)
    pair.until_taken_over(epoch)
    leader.disarm()
    pair.settle()
    assert pair.rig.leader() is standby
    assert leader.is_running(), leader.tail()
    assert pair.breaches() == []


def test_a_disk_that_is_full_for_a_while_loses_nothing(pair: Pair) -> None:
    leader, standby = pair.ready()
    epoch, lost = pair.rig.pipeline_state().epoch, len(leader.events("TermGone"))
    for program in (leader, standby):
        program.arm("disk.full", "fill")
    pair.rig.shop.sell(3)
    pair.rig.outlast(leader, standby)
    leader.until_event("TermGone", count=lost + 1)
    for program in (leader, standby):
        assert program.is_running(), program.tail()
        program.disarm()
    pair.until_taken_over(epoch)
    pair.settle()
    assert pair.breaches() == []


def test_a_state_store_that_stalls_for_everybody_is_followed_by_a_later_epoch(pair: Pair) -> None:
    leader, _ = pair.ready()
    epoch, lost = pair.rig.pipeline_state().epoch, len(leader.events("TermGone"))
    with closing(sqlite3.connect(pair.rig.state.path, timeout=PATIENCE, isolation_level=None)) as other:
        other.execute("begin immediate")
        pair.rig.outlast(leader)
        leader.until_event("TermGone", count=lost + 1)
        other.execute("rollback")
    pair.until_taken_over(epoch)
    pair.settle()
    assert pair.breaches() == []


@pytest.mark.parametrize("whole", [False, True], ids=["driver", "tree"])
def test_a_leader_that_is_killed_is_followed_at_once(pair: Pair, whole: bool) -> None:
    leader, standby = pair.ready()
    epoch = pair.rig.pipeline_state().epoch
    send(signal.SIGKILL, leader.tree() if whole else leader.tree()[:1])
    pair.until_taken_over(epoch)
    assert leader.exit_code() == -signal.SIGKILL
    pair.settle()
    assert pair.rig.leader() is standby
    assert pair.breaches() == []
