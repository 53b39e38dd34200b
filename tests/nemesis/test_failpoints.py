"""Killed, paused or deposed at each named point between reading and settling: nothing lost, nothing out of order."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from deadline import until
from fix_rig import Rig, Sampler
from nemesis import PASSED
from penstock.testing import oracle
from program import Program, send

LOOKS = 10  # at the watermark while somebody pauses: time for the writer to record progress, if it believed in any
CLAIMS = ("writer.claiming", "writer.claimed")


class Crew:
    """A leader and a standby that live through all tests of this module; whoever dies is replaced."""

    def __init__(self, rig: Rig, sampler: Sampler) -> None:
        self.rig, self.members, self._sampler = rig, [rig.start(), rig.start()], sampler

    def recover(self) -> Program:
        """Undo all faults, wait until everything is delivered, and answer who leads."""
        for i, member in enumerate(self.members):
            member.disarm()
            send(signal.SIGCONT, member.tree())
            if not member.is_running():
                member.exit_code()
                self.members[i] = self.rig.start()
        self.rig.until_settled()
        return until(self.rig.leader)

    def other(self, member: Program) -> Program:
        """The one that does not lead; it stands by when this returns."""
        [other] = [one for one in self.members if one is not member]
        other.until_event("StandingBy")
        return other

    def come_to(self, member: Program, point: str) -> None:
        """Make somebody come to this point: all do so by themselves when a change is made, but a claim needs a new attempt."""
        if point in CLAIMS:
            member.arm("writer.advancing", "kill")
        self.rig.shop.sell(3)
        member.until_reached(point)

    def look(self, times: int) -> None:
        """Wait until the watermark was looked at so often again."""
        upto = len(self._sampler.marks) + times
        until(lambda: len(self._sampler.marks) >= upto)

    def breaches(self) -> list[str]:
        """What the oracles say of all that has happened so far."""
        return self.rig.breaches(list(self._sampler.marks))


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with Rig(tmp_path_factory.mktemp("points")) as rig, Sampler(rig) as sampler:
        yield Crew(rig, sampler)


@pytest.mark.parametrize("point", PASSED)
def test_a_pause_only_delays_and_nothing_is_recorded_ahead_of_it(crew, point):
    leader = crew.recover()
    if point.startswith("sink"):  # of an attempt that has had no answer yet, and so knows least
        leader.arm("writer.advancing", "kill")
        leader.until_reached("writer.advancing")
    leader.arm(point, "pause")
    crew.come_to(leader, point)
    crew.rig.shop.sell(30)
    crew.look(LOOKS)
    leader.disarm()
    crew.rig.until_settled()
    assert crew.breaches() == []


@pytest.mark.parametrize("point", PASSED)
def test_a_kill_loses_nothing(crew, point):
    leader = crew.recover()
    leader.arm(point, "kill")
    crew.come_to(leader, point)
    crew.rig.shop.sell(30)
    crew.recover()
    assert crew.breaches() == []


def test_a_successor_waits_for_its_predecessors_last_breath_and_repeats_nothing_of_it(crew):
    leader = crew.recover()
    before = len(crew.rig.positions())
    leader.arm("sink.sent", "pause")
    crew.come_to(leader, "sink.sent")
    leader.arm("writer.claiming", "pause")
    leader.arm("reader.read", "kill")
    leader.until_reached("writer.claiming")
    leader.release("writer.claiming")
    crew.look(LOOKS)
    leader.disarm()
    crew.rig.until_settled()
    positions = crew.rig.positions()[before:]
    assert positions == sorted(set(positions))
    assert crew.breaches() == []


@pytest.mark.parametrize(
    "points",
    [
        ("sink.sending", "writer.advancing", "reader.read", "source.settling"),
        ("sink.sent", "writer.advanced", "reader.yielded"),
        ("writer.claiming",),
        ("writer.claimed",),
    ],
    ids="+".join,
)
def test_a_leader_that_is_stopped_past_its_term_and_goes_on_from_there_changes_nothing(crew, points):
    leader = crew.recover()
    successor = crew.other(leader)
    for point in points:
        leader.arm(point, "pause")
        crew.come_to(leader, point)
    crew.rig.freeze(leader)
    crew.rig.until_outlasted_by(successor)
    crew.rig.until_settled()
    crew.rig.shop.sell(3)
    terms_lost = len(leader.events("TermGone"))
    leader.disarm()
    send(signal.SIGCONT, leader.tree())
    leader.until_event("TermGone", count=terms_lost + 1)
    crew.rig.shop.sell(3)
    crew.rig.until_settled()
    assert crew.rig.leader() is successor
    assert crew.breaches() == []


def test_every_point_was_taken_by_one_of_these(crew):
    crew.recover()
    seen = crew.rig.deliveries()
    assert len(seen) > len(list(oracle.firsts(seen))), "nothing was ever repeated, so nothing was ever killed in time"
