"""A second process stands by, takes over at once, and comes back by itself when its JVM is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from deadline import until
from fix_rig import Rig
from program import Program, send, status


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("pair"))
    rig.start().until_event("LaneClaimed")
    yield rig
    rig.close()


def lone_leader(rig: Rig) -> Program:
    """Whoever leads, once nothing waits any more."""
    rig.until_settled(within=60)
    return until(rig.leader, 30)


def test_a_standby_delivers_within_two_seconds_of_the_leaders_kill(pair, note):
    leader, standby = lone_leader(pair), pair.start()
    standby.until_event("StandingBy", within=120)
    send(signal.SIGKILL, leader.tree()[:1])
    killed_at, position = time.time(), pair.shop.sell(1)
    pair.until_delivered(position)
    [arrived] = [one.at for one in pair.deliveries() if one.position == position]
    note(f"{arrived - killed_at:.2f} s from the kill to the standby's first change")
    leader.process.wait(10)
    leader.assert_gone()
    assert pair.leader() is standby
    assert arrived - killed_at < 2.0
    assert pair.breaches() == []


def test_nothing_survives_a_kill_of_the_whole_tree_and_the_next_process_goes_on(pair):
    lone_leader(pair).kill_tree()
    _, [seen] = status(pair.file)
    assert seen["state"] == "stopped"
    pair.shop.sell(5)
    pair.start()
    pair.until_settled(within=60)
    assert pair.breaches() == []


def test_a_process_whose_engine_is_killed_comes_back_by_itself(pair):
    leader = lone_leader(pair)
    epoch, engine = pair.state.standing(pair.name).epoch, leader.jvm()
    send(signal.SIGKILL, [engine])
    pair.shop.sell(5)
    pair.until_settled(within=90)
    assert leader.is_running()
    assert leader.jvm().pid != engine.pid
    assert pair.state.standing(pair.name).epoch > epoch
    assert pair.breaches() == []
    assert leader.terminate() == 0
