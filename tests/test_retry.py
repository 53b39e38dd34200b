"""How long to wait, and when to give up."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.retry import LONGEST_ASKED, Retry

chances = st.floats(0, 1, exclude_max=True)
tries = st.integers(1, 10_000)


@st.composite
def retries(draw):
    least, most = sorted(draw(st.tuples(st.integers(1, 100_000), st.integers(1, 100_000))))
    policy = draw(st.sampled_from(["linear", "exponential"]))
    return Retry(policy=policy, min=timedelta(milliseconds=least), max=timedelta(milliseconds=most))


def waits(policy, number=7):
    retry = Retry(policy=policy, min=timedelta(seconds=1), max=timedelta(seconds=5))
    return [retry.wait(tried, 0.9999999) for tried in range(1, number)]


def test_linear_waits_grow_by_the_least_up_to_the_most():
    assert waits("linear") == pytest.approx([1, 2, 3, 4, 5, 5])


def test_exponential_waits_double_up_to_the_most():
    assert waits("exponential") == pytest.approx([1, 2, 4, 5, 5, 5])


@given(retries(), tries, chances)
def test_a_wait_is_never_shorter_than_the_least_nor_longer_than_the_most(retry, tried, chance):
    assert retry.min.total_seconds() <= retry.wait(tried, chance) <= retry.max.total_seconds()


@given(retries(), tries, chances)
def test_chance_spreads_a_wait_over_its_last_quarter(retry, tried, chance):
    longest = retry.wait(tried, 1.0)
    assert 0.75 * longest - 1e-9 <= retry.wait(tried, chance) <= longest


@given(retries(), tries, chances, st.floats(0, 10_000))
def test_a_receiver_may_ask_for_more_time_up_to_a_bound_but_never_for_less(retry, tried, chance, asked):
    own = retry.wait(tried, chance)
    assert retry.wait(tried, chance, asked) == max(own, min(asked, LONGEST_ASKED))


@given(st.integers(1, 1000), tries)
def test_the_last_try_is_the_number_given(limit, tried):
    assert Retry(tries=limit).is_spent(tried) == (tried >= limit)


@given(tries)
def test_forever_is_never_spent(tried):
    assert not Retry(tries="forever").is_spent(tried)


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"tries": -1}, {"min": timedelta(0)}, {"min": timedelta(seconds=31)}])
def test_what_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError, match="retry"):
        Retry(**wrong)
