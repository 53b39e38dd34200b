"""The election, as pure steps."""

from __future__ import annotations

from penstock.coordinators.kafka.neli import Ownership

DEADLINE = 5.0


def leading(at: float = 0.0) -> Ownership:
    return Ownership().assigned([0]).received(at, at, DEADLINE)


def test_partition_zero_makes_the_owner_and_its_own_heartbeat_the_leader() -> None:
    other = Ownership().assigned([1, 2])
    assert not other.received(1.0, 1.0, DEADLINE).leads
    owner = other.assigned([0])
    assert owner.owns
    assert not owner.leads
    assert owner.received(1.0, 1.1, DEADLINE) == Ownership(owns=True, leads=True, seen_at=1.0)


def test_only_the_loss_of_partition_zero_revokes() -> None:
    leader = leading().assigned([1, 2])
    still = leader.revoked([1])
    assert still.leads
    assert not still.revocations
    assert still.revoked([0, 2]) == Ownership(seen_at=0.0, revocations=1)


def test_who_was_fenced_before_is_not_revoked_once_more() -> None:
    fenced = leading().checked(6.0, DEADLINE)
    assert fenced.revoked([0]) == Ownership(seen_at=0.0)


def test_a_leader_that_does_not_see_its_heartbeats_is_fenced_and_resumes_when_it_sees_one() -> None:
    leader = leading(at=10.0)
    assert leader.checked(15.0, DEADLINE) == leader
    fenced = leader.checked(15.1, DEADLINE)
    assert not fenced.leads
    assert fenced.owns
    assert fenced.checked(16.0, DEADLINE) == fenced
    assert fenced.received(17.0, 17.1, DEADLINE).leads


def test_a_heartbeat_that_was_on_its_way_for_too_long_proves_nothing() -> None:
    owner = Ownership().assigned([0])
    assert not owner.received(1.0, 6.1, DEADLINE).leads


def test_heartbeats_that_come_out_of_order_do_not_set_the_clock_back() -> None:
    leader = leading(at=10.0).received(8.0, 10.0, DEADLINE)
    assert leader.seen_at == 10.0
