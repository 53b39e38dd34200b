"""How many changes a worker says it has delivered."""

import pytest

from penstock.change import Change, Op, to_batch
from penstock.poison.policy import HALTING, Poison
from penstock.spark.meter import Meter


def run(*places):
    return to_batch([Change(position, Op.INSERT, "t", "{}", ordinal=ordinal) for position, ordinal in places])


@pytest.fixture
def meter():
    made = Meter(HALTING)
    made.hand(run((1, None), (2, None), (3, None)))
    made.hand(run((4, 1), (4, 2), (5, None)))
    return made


def told(meter, position=99):
    count = meter.tally(position).delivered
    meter.recorded()
    return count


def test_a_request_that_ends_inside_a_run_counts_as_far_as_it_goes(meter):
    meter.reach((2, 0))
    assert told(meter) == 2
    meter.reach((4, 1))
    assert told(meter) == 2
    meter.reach((5, 0))
    assert told(meter) == 2


def test_the_store_counts_no_more_than_the_watermark_has_passed(meter):
    meter.reach((4, 1))
    assert meter.report(1.0) == 4
    assert told(meter, 2) == 2
    assert told(meter, 3) == 1
    meter.reach((5, 0))
    assert told(meter, 4) == 2, "a mark behind it"
    assert told(meter, 5) == 1


def test_what_is_kept_back_counts_where_it_lies_and_not_before():
    poison = Poison()
    meter = Meter(poison)
    meter.hand(run(*((position, None) for position in range(1, 9))))
    poison.hand_back([(7, 0), (2, 0), (5, 0)])
    meter.reach((4, 0))
    assert told(meter) == 3, "the store would say so for ever if the process died now"
    meter.reach((6, 0))
    assert told(meter) == 1
    meter.reach((8, 0))
    assert told(meter) == 1


def test_the_rate_is_that_of_the_last_stretch_and_each_change_is_told_once(meter):
    meter.reach((3, 0))
    assert meter.report(2.0) == 3
    assert meter.tally(99).rate == 1.5
    meter.reach((5, 0))
    assert meter.report(0.5) == 3
    assert meter.tally(99).rate == 6.0
    assert meter.report(1.0) == 0
    assert meter.tally(99).rate == 0.0


def test_what_was_counted_is_not_counted_again(meter):
    for _ in range(3):
        meter.reach((4, 1))
    assert told(meter) == 4
    assert told(meter) == 0
    assert meter.report(2.0) == 4
