"""When a batch goes: the decision alone, over every arrival and every length of request."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.settings import Batch, due_in

TICK = 1 / 64  # seconds, exact in floats

sizes = st.integers(1, 20)
seconds = st.floats(0, 100)


@st.composite
def batches(draw):
    return Batch(size=draw(sizes), delay=draw(st.integers(0, 15)) * timedelta(seconds=TICK))


@given(batches(), seconds)
def test_nothing_goes_while_nothing_waits(batch, waited):
    assert due_in(0, waited, batch) is None


@given(batches(), st.integers(0, 50), seconds)
def test_a_full_batch_goes_at_once(batch, more, waited):
    assert due_in(batch.size + more, waited, batch) == 0


@given(batches(), st.integers(1, 20), seconds)
def test_a_partial_batch_goes_when_its_first_change_has_waited_for_the_delay(batch, waiting, waited):
    due = due_in(waiting, waited, batch)
    rest = batch.delay.total_seconds() - waited
    assert due == (0 if waiting >= batch.size else max(0, rest))


@given(batches(), st.integers(1, 20), seconds)
def test_urgency_does_not_wait(batch, waiting, waited):
    assert due_in(waiting, waited, batch, is_urgent=True) == 0


@given(
    batches(),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=30),
    st.lists(st.integers(0, 100), min_size=1, max_size=10),
)
def test_followed_through_time_every_change_goes_once_in_order_and_never_too_late(batch, offers, lengths):
    """Arrivals as (ticks after the last, number of changes), requests with these lengths in turn."""
    arrivals, now = [], 0.0
    for pause, many in offers:
        now += pause * TICK
        arrivals += [now] * many
    sent, clock, delay = 0, 0.0, batch.delay.total_seconds()
    for turn in range(len(arrivals)):
        free = clock
        clock = max(clock, arrivals[sent])
        while (due := due_in(there := sum(a <= clock for a in arrivals) - sent, clock - arrivals[sent], batch)) != 0:
            clock = min([*[a for a in arrivals if a > clock][:1], clock + due])
        taken = arrivals[sent : sent + min(there, batch.size)]
        assert clock <= max(free, taken[0] + delay)
        assert len(taken) == batch.size or clock >= taken[0] + delay
        sent += len(taken)
        clock += lengths[turn % len(lengths)] * TICK
        if sent == len(arrivals):
            return
    raise AssertionError("some never went")
