"""The pure decisions about a holder's life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinators.observation import Sighting, Verdict, judge, sight, trusted_until

TTL = 5.0
SEEN = Sighting(epoch=3, beat=7, since=100.0)


def test_a_vacant_term_is_free() -> None:
    assert judge(SEEN, True, None, 100.0, TTL) is Verdict.FREE


def test_a_holder_whose_lock_is_free_is_dead_however_fresh_its_beat() -> None:
    assert judge(SEEN, False, False, 100.0, TTL) is Verdict.DEAD


def test_a_holder_that_was_seen_to_move_within_the_ttl_is_there() -> None:
    assert judge(SEEN, False, True, 104.9, TTL) is Verdict.HELD
    assert judge(SEEN, False, None, 104.9, TTL) is Verdict.HELD


def test_a_holder_that_did_not_move_for_the_ttl_is_silent_even_if_it_lives() -> None:
    assert judge(SEEN, False, True, 105.0, TTL) is Verdict.SILENT
    assert judge(SEEN, False, None, 105.0, TTL) is Verdict.SILENT


def test_a_beat_is_seen_from_its_first_sighting_on() -> None:
    assert sight(None, 3, 7, 100.0) == SEEN
    assert sight(SEEN, 3, 7, 104.0) is SEEN
    assert sight(SEEN, 3, 8, 104.0) == Sighting(3, 8, 104.0)
    assert sight(SEEN, 4, 7, 104.0) == Sighting(4, 7, 104.0)


@given(asked_at=st.floats(0, 1e9), delay=st.floats(0, 10), ttl=st.floats(0.1, 100))
def test_nobody_calls_a_holder_silent_while_it_trusts_itself(asked_at: float, delay: float, ttl: float) -> None:
    sighting = Sighting(1, 1, asked_at + delay)  # a beat is seen after it was asked for
    assert judge(sighting, False, None, trusted_until(asked_at, ttl), ttl) is Verdict.HELD
