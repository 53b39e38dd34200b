"""A second process stands by, takes over at once, and comes back by itself when its JVM is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from deadline import until
from fix_rig import Rig
from penstock.testing import oracle
from program import Program, send, status

TRIES = 8


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("pair")) as rig:
        rig.start().until_event("LaneClaimed")
        yield rig


def lone_leader(rig: Rig) -> Program:
    """Whoever leads, once nothing waits any more."""
    rig.until_settled()
    return until(rig.leader)


def first_of_a_later_epoch(rig: Rig, epoch: int) -> oracle.Delivery | None:
    """The first change that a successor has delivered; workers of the one that was killed may deliver for a moment."""
    rig.shop.sell(1)
    return next((delivery for delivery in rig.deliveries() if delivery.epoch > epoch), None)


def hand_over(rig: Rig) -> float:
    """Kill the leader of a warm standby; seconds until that one's first change has come."""
    leader, standby = lone_leader(rig), rig.start()
    standby.until_event("StandingBy")
    killed_at, epoch = time.time(), rig.standing().epoch
    send(signal.SIGKILL, leader.tree()[:1])
    seconds = until(lambda: first_of_a_later_epoch(rig, epoch)).at - killed_at
    leader.process.wait(10)
    leader.assert_gone()
    assert rig.leader() is standby
    return seconds


def test_a_standby_delivers_within_two_seconds_of_the_leaders_kill(pair, note):
    seconds = [hand_over(pair)]
    while seconds[-1] >= 2.0 and len(seconds) < TRIES:  # the machine may be shared
        seconds.append(hand_over(pair))
    note(f"{seconds[-1]:.2f} s from the kill to the standby's first change")
    assert min(seconds) < 2.0
    pair.until_settled()
    assert pair.breaches() == []


def test_nothing_survives_a_kill_of_the_whole_tree_and_the_next_process_goes_on(pair):
    lone_leader(pair).kill_tree()
    _, [seen] = status(pair.file)
    assert seen["state"] == "stopped"
    before = len(pair.positions())
    last = pair.shop.sell(5)
    pair.start()
    pair.until_settled()
    assert pair.positions()[before:] == list(range(last - 4, last + 1)), "what was settled came again"
    assert pair.breaches() == []


def test_a_process_whose_engine_is_killed_comes_back_by_itself(pair):
    leader = lone_leader(pair)
    epoch, engine = pair.standing().epoch, leader.jvm()
    send(signal.SIGKILL, [engine])
    pair.shop.sell(5)
    pair.until_settled()
    assert leader.is_running()
    assert leader.jvm().pid != engine.pid
    assert pair.standing().epoch > epoch
    assert pair.breaches() == []
    assert leader.terminate() == 0
