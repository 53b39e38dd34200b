"""The pure decisions about a holder's life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinators.holder import Sighting, is_gone, sight, trusted_until

TTL = 5.0
SEEN = Sighting(epoch=3, beat=7, since=100.0)


def test_a_holder_whose_lock_is_free_is_gone_however_fresh_its_beat() -> None:
    assert is_gone(SEEN, False, 100.0, TTL)


def test_a_holder_that_was_seen_to_move_within_the_ttl_is_there() -> None:
    assert not is_gone(SEEN, True, 104.9, TTL)
    assert not is_gone(SEEN, None, 104.9, TTL)


def test_a_holder_that_did_not_move_for_the_ttl_is_gone_even_if_it_lives() -> None:
    assert is_gone(SEEN, True, 105.0, TTL)
    assert is_gone(SEEN, None, 105.0, TTL)


def test_a_beat_is_seen_from_its_first_sighting_on() -> None:
    assert sight(None, 3, 7, 100.0) == SEEN
    assert sight(SEEN, 3, 7, 104.0) is SEEN
    assert sight(SEEN, 3, 8, 104.0) == Sighting(3, 8, 104.0)
    assert sight(SEEN, 4, 7, 104.0) == Sighting(4, 7, 104.0)


@given(asked_at=st.floats(0, 1e9), delay=st.floats(0, 10), ttl=st.floats(0.1, 100))
def test_nobody_calls_a_holder_silent_while_it_trusts_itself(asked_at: float, delay: float, ttl: float) -> None:
    sighting = Sighting(1, 1, asked_at + delay)  # a beat is seen after it was asked for
    assert not is_gone(sighting, None, trusted_until(asked_at, ttl), ttl)
