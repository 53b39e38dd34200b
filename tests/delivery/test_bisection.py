"""Which changes of a batch are condemned, whatever the far side does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.bisection import Bisection, Fault, Part, parted
from penstock.delivery.schedule import Waiting
from penstock.rows import Row


def waiting(number: int, key: int | None = None) -> Waiting:
    rows: tuple[Row, ...] = (("t", str(number if key is None else key)),)
    return Waiting(number, 0.0, (number, 0), "", rows)


@given(st.sets(st.integers(1, 9), min_size=1), st.sets(st.integers(0, 10), min_size=1), st.randoms())
def test_a_part_is_parted_by_places_whatever_its_order(numbers: set[int], named: set[int], chance: random.Random) -> None:
    changes = [waiting(number) for number in sorted(numbers)]
    if chance.random() < 0.3:
        chance.shuffle(changes)
    refused, others = parted(changes, {(number, 0) for number in named})
    assert refused == [one for one in changes if one.number in named]
    assert others == [one for one in changes if one.number not in named]


def test_parts_that_go_together_once_more_are_in_the_order_of_their_changes() -> None:
    bisection = Bisection([waiting(number) for number in range(3)], lambda refusals: True)
    bisection.parts = [Part([waiting(0)]), Part([waiting(3)], refusals=1), Part([waiting(2)], refusals=1, is_refused=False)]
    assert bisection.failed(bisection.parts[0], Fault.CERTAIN) == waiting(0)
    assert [list(part.changes) for part in bisection.parts] == [[waiting(2), waiting(3)]]
    assert not bisection.parts[0].is_refused, "one of them may have been taken"


@dataclass
class World:
    """A far side that refuses some changes, and is down for some requests; `more` waits behind the batch."""

    bad: Collection[int]
    fault: Fault = Fault.POSSIBLE
    is_down: Callable[[int], bool] = lambda request: False
    more: list[Waiting] = field(default_factory=list)
    taken: int = 0
    requests: int = 0
    rests: int = 0
    arrived: list[int] = field(default_factory=list)
    condemned: list[int] = field(default_factory=list)

    def carry(self, batch: Sequence[Waiting], tries: float = 1, patience: int = 1000) -> World:
        bisection = Bisection(batch, lambda refusals: refusals >= tries)
        while bisection.parts and self.rests < patience:
            if bisection.wants_more(self.taken) and self.more:
                bisection.add([self.more.pop(0)])
            part = bisection.next(self.taken)
            if part is None:
                self.rests += 1
                bisection.again()
                continue
            assert list(part.changes) == sorted(part.changes)
            self.requests, part.sent_at, part.attempts = self.requests + 1, self.taken, part.attempts + 1
            if self.is_down(self.requests):
                condemned = bisection.failed(part, Fault.POSSIBLE)
            elif not any(one.number in self.bad for one in part.changes):
                bisection.taken(part)
                self.taken += 1
                self.arrived += [one.number for one in part.changes]
                continue
            else:
                condemned = bisection.failed(part, self.fault)
            if condemned:
                self.condemned.append(condemned.number)
        return self


@pytest.mark.parametrize("fault", [Fault.POSSIBLE, Fault.CERTAIN])
@pytest.mark.parametrize("seed", range(150))
def test_any_set_of_bad_changes_in_any_batch_is_condemned_and_nothing_else(seed: int, fault: Fault) -> None:
    rounds = random.Random(seed)
    size = rounds.randrange(1, 60)
    batch = [waiting(number, rounds.randrange(rounds.choice([2, 8, 100]))) for number in range(size)]
    bad = {number for number in range(size) if rounds.random() < rounds.choice([0.02, 0.2, 0.6])}
    world = World(bad, fault, more=[waiting(1000 + number) for number in range(60)]).carry(batch, rounds.choice([1, 3]))
    assert sorted(world.condemned) == sorted(bad)
    assert sorted(number for number in world.arrived if number < 1000) == [n for n in range(size) if n not in bad]
    settled = {number: order for order, number in enumerate(world.arrived)}
    for row in {one.rows for one in batch}:
        arrived = [one.number for one in batch if one.rows == row and one.number in settled]
        assert arrived == sorted(arrived, key=settled.__getitem__)


@pytest.mark.parametrize("fault", [Fault.POSSIBLE, Fault.CERTAIN])
def test_one_bad_change_of_a_hundred_costs_a_request_for_each_halving_and_a_few_more(fault: Fault) -> None:
    for bad in range(100):
        world = World({bad}, fault, more=[waiting(1000)]).carry([waiting(number) for number in range(100)])
        assert world.condemned == [bad]
        assert world.requests <= math.ceil(math.log2(100)) + (3 if fault is Fault.CERTAIN else 6)
        assert world.rests == 0


def test_as_long_as_nothing_is_taken_nothing_is_condemned_and_a_rest_lies_between_few_requests() -> None:
    world = World(set(), is_down=lambda request: True, more=[waiting(1000)]).carry([waiting(n) for n in range(100)], patience=50)
    assert (world.condemned, world.arrived) == ([], [])
    assert world.requests <= 20 + 3 * 50


@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize("end", range(1, 60, 3))
def test_an_outage_that_begins_and_ends_anywhere_condemns_no_good_change(end: int, tries: int) -> None:
    for start in range(0, end, 2):
        world = World({40}, is_down=lambda request, start=start: start < request <= end, more=[waiting(1000), waiting(1001)])
        world.carry([waiting(n) for n in range(60)], tries)
        assert world.condemned == [40]
        assert sorted(set(world.arrived) - {1000, 1001}) == [n for n in range(60) if n != 40]


def test_a_change_that_is_alone_is_not_condemned_before_something_else_was_taken() -> None:
    assert World({0}).carry([waiting(0)], tries=2, patience=20).condemned == []
    assert World({0}, more=[waiting(1)]).carry([waiting(0)], tries=2).condemned == [0]


def test_a_later_change_of_its_own_row_clears_no_doubt() -> None:
    assert World({0}, more=[waiting(1, key=0)]).carry([waiting(0)], patience=20).condemned == []
    world = World({0}, more=[waiting(1, key=0), waiting(2)]).carry([waiting(0)])
    assert (world.condemned, world.arrived) == ([0], [2, 1])


def test_before_its_tries_are_spent_a_batch_stays_whole() -> None:
    world = World({3}).carry([waiting(n) for n in range(8)], tries=5, patience=4)
    assert (world.requests, world.condemned) == (4, [])


def test_where_nobody_was_reached_a_batch_stays_whole_for_ever() -> None:
    world = World({3}, Fault.NONE).carry([waiting(n) for n in range(8)], patience=30)
    assert (world.requests, world.condemned) == (30, [])


def test_what_is_about_a_whole_table_waits_for_doubted_changes_and_they_for_it() -> None:
    whole = Waiting(1, 0.0, (1, 0), "", (("t", None),))
    world = World({0}, more=[whole, waiting(2)]).carry([waiting(0)], patience=20)
    assert (world.condemned, world.arrived) == ([], [])


@pytest.mark.parametrize("bad", [0, 1])
def test_a_change_about_a_whole_table_holds_up_no_other_table(bad: int) -> None:
    whole = Waiting(1, 0.0, (1, 0), "", (("t", None),))
    other = Waiting(2, 0.0, (2, 0), "", (("u", "2"),))
    world = World({bad}, more=[other]).carry([waiting(0), whole], patience=20)
    assert (world.condemned, sorted(world.arrived)) == ([bad], sorted({0, 1, 2} - {bad}))


def test_a_doubted_change_whose_second_hearing_came_to_nothing_waits_for_a_rest_and_another_witness() -> None:
    bisection = Bisection([waiting(0)], lambda refusals: refusals >= 1)
    [part] = bisection.parts
    assert bisection.failed(part, Fault.POSSIBLE) is None
    assert bisection.next(taken=1) is part
    part.sent_at = 1
    assert bisection.failed(part, Fault.NONE) is None
    assert bisection.next(taken=1) is None, "it would be sent again and again without a rest"
    assert bisection.next(taken=2) is part
    part.sent_at = 2
    assert bisection.failed(part, Fault.POSSIBLE) == waiting(0)


def test_what_was_taken_while_a_doubted_change_was_under_way_is_no_witness_against_it() -> None:
    bisection = Bisection([waiting(0)], lambda refusals: refusals >= 1)
    [part] = bisection.parts
    assert bisection.failed(part, Fault.POSSIBLE) is None
    bisection.again()
    assert bisection.next(taken=0) is part
    assert bisection.failed(part, Fault.POSSIBLE) is None, "another line's request was taken after this one was sent"
    assert bisection.next(taken=1) is part


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("tries", [1, 5, math.inf])
def test_an_outage_costs_few_requests_however_much_waits_behind(size: int, tries: float) -> None:
    fault = Fault.LIKELY if tries == math.inf else Fault.POSSIBLE
    world = World(range(2000), fault, more=[waiting(number) for number in range(size, 2000)])
    world.carry([waiting(number) for number in range(size)], tries, patience=100)
    assert (world.condemned, world.arrived) == ([], [])
    assert world.requests <= 3 * world.rests + 2 * size


def test_who_has_failed_least_is_the_first_to_be_a_witness() -> None:
    bad = range(6)
    more = [waiting(number) for number in range(1, 20)]
    world = World(bad, Fault.LIKELY, more=more).carry([waiting(0)], tries=math.inf, patience=20)
    assert sorted(world.condemned) == [*bad]
    assert world.arrived == [6]
