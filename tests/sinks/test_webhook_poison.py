"""Changes that a receiver never takes: found, and given up or parked, while the others go on."""

from __future__ import annotations

import json
import random
import select
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ending import Clock, ending

from deadline import PATIENCE, until
from penstock.change import Change, Lane, Op, to_batch
from penstock.coordinators.sqlite import store
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.delivery.settings import Batch
from penstock.errors import DeliveryExhausted, StateInvalid
from penstock.event import ChangeDropped, ChangeParked, ChangesPassed, DeliveryRetried
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import HALTING, Poison
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.response import ResponseParser
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing.receiver import Receiver

LANE = Lane("main")
MILLISECOND = timedelta(milliseconds=1)


def changes(*keys: int, start: int = 1) -> list[Change]:
    """A change for each key."""
    return [Change(p, Op.INSERT, "t", f'{{"id":{key}}}', None, f'{{"id":{key},"n":{p}}}', p) for p, key in enumerate(keys, start)]


@dataclass
class Desk:
    """A webhook with a store of letters behind it."""

    receiver: Receiver
    state: SqliteCoordinator
    claim: Any
    told: Any
    stage: ExitStack
    poison: Poison = HALTING

    def open(self, then: Any = "dead-letter", keys: Any = "wait", tries: Any = 2, size: int = 20, **settings: Any) -> Any:
        retry = Retry(tries=tries, min=MILLISECOND, max=4 * MILLISECOND, then=then, keys=keys)
        calm = {"timeout": timedelta(seconds=PATIENCE), **settings}  # no try is given up because the machine stalls
        sink = WebhookSink(url=self.receiver.url, retry=retry, batch=Batch(size=size, delay=MILLISECOND), **calm)
        self.poison = Poison(then, keys, self.claim, Circumstances("orders", LANE, "cafe", 1, self.told.all))
        assignment = Assignment("orders", LANE, 1, 0, "cafe", None, self.told, self.poison)
        return self.stage.enter_context(closing(sink.open(assignment)))

    def release_when_held(self, count: int) -> None:
        """Wait until so many requests are held at once, and see them answered."""
        self.receiver.wait_for(lambda: len(self.receiver.held) == count, PATIENCE)
        before = len(self.receiver.requests)
        self.receiver.release()
        self.receiver.wait_for(lambda: len(self.receiver.requests) == before + count, PATIENCE)

    def parked(self) -> list[int]:
        return [letter.change.position for letter in self.state.letters("orders")]

    def arrived(self) -> list[int]:
        return [change["position"] for change in self.receiver.changes()]

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.told.events if isinstance(event, kind)]


@pytest.fixture
def desk(receiver: Receiver, told: Any, tmp_path: Path) -> Iterator[Desk]:
    state = SqliteCoordinator(str(tmp_path / "state.db"), ttl=PATIENCE)
    with ExitStack() as stage:
        term = stage.enter_context(closing(state.candidate("orders", "test"))).campaign()
        assert term
        state.place(term, {LANE: Watermark(Cursor("c0"), 0)})
        yield Desk(receiver, state, stage.enter_context(state.claim(term, LANE, 1)), told, stage)


PARALLEL = pytest.mark.parametrize("parallel", [1, 4])


def assert_in_order(seen: list[dict[str, Any]]) -> None:
    """First deliveries, per key."""
    last: dict[str, int] = {}
    firsts: dict[int, dict[str, Any]] = {}
    for change in seen:
        firsts.setdefault(change["position"], change)
    for change in firsts.values():
        key = str(change["key"])
        assert last.get(key, 0) < change["position"]
        last[key] = change["position"]


@PARALLEL
@pytest.mark.parametrize("status", [422, 500])
def test_only_the_bad_changes_are_parked_and_everything_else_arrives_in_order(desk: Desk, parallel: int, status: int) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(status,))
    given = changes(*(n % 50 + 100 for n in range(1, 121)))
    delivery = desk.open(parallel=parallel)
    assert delivery.offer(to_batch(given), PATIENCE)
    assert delivery.offer(to_batch(changes(1, 2, 3, start=121)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [7, 57, 107]
    assert sorted(set(desk.arrived())) == [p for p in range(1, 124) if p not in (7, 57, 107)]
    assert_in_order(desk.receiver.changes())
    first, *others = desk.state.letters("orders")
    assert (first.is_behind, [one.is_behind for one in others]) == (False, [True, True])
    assert f"status {status}" in first.message
    assert delivery.delivered().position == 123
    assert len(desk.events(ChangeParked)) == 1


def test_a_receiver_may_take_all_but_what_it_names(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(207,), names_poison=True)
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(101, 121))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), len(desk.receiver.requests)) == ([7], 1)
    assert desk.arrived() == [p for p in range(1, 21) if p != 7]
    [letter] = desk.state.letters("orders")
    assert ("status 207, named by Penstock-Refused" in letter.message, letter.is_overtaken) == (True, False)


def test_what_it_takes_past_a_change_that_it_names_is_known_to_have_overtaken_it(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":2}', statuses=(200,), names_poison=True)
    delivery = desk.open(size=4)
    delivery.offer(to_batch(changes(1, 2, 2, 2, 2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.arrived() == [1, 3, 4]
    assert [(one.change.position, one.is_overtaken, one.is_behind) for one in desk.state.letters("orders")] == [
        (2, True, False),
        (5, False, True),
    ]
    desk.poison.reach((5, 0))
    desk.poison.settle(5)
    desk.poison.park()
    assert [event.changes for event in desk.events(ChangesPassed)] == [2]


UNKNOWN = {"op": Op.UPDATE, "before": '{"other":1}'}
SCHEMA = {"op": Op.SCHEMA, "before": '{"table":"t"}', "key": "{}"}


@pytest.mark.parametrize(
    ("second", "last", "is_overtaken"),
    [(UNKNOWN, {}, True), ({}, UNKNOWN, True), (SCHEMA, {}, False), ({}, SCHEMA, False), ({}, {}, False)],
)
def test_an_update_of_an_unknown_old_key_is_passed_by_its_table_and_passes_all_of_it_and_a_schema_neither(
    desk: Desk, second: Any, last: Any, is_overtaken: bool
) -> None:
    desk.receiver.turn(poison='"n":2}', statuses=(200,), names_poison=True)
    one, two, three = changes(1, 2, 3)
    delivery = desk.open(size=3)
    delivery.offer(to_batch([one, two.replace(**second), three.replace(**last)]), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.arrived() == [1, 3]
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(2, is_overtaken)]


def test_where_keys_go_on_what_the_receiver_names_has_not_passed_the_letter_before_it(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":2}', statuses=(200,), names_poison=True)
    delivery = desk.open(keys="go-on", size=3)
    desk.poison.condemn(*changes(7), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(7, 8, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(1, False), (2, False)]
    delivery.offer(to_batch(changes(7, start=4)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(1, True), (2, True)]
    assert desk.arrived() == [3, 4]


@pytest.mark.parametrize(("status", "is_overtaken"), [(422, False), (500, True)])
def test_where_keys_go_on_only_what_was_certainly_not_taken_has_not_passed_the_letter(
    desk: Desk, status: int, is_overtaken: bool
) -> None:
    desk.receiver.turn(poison='"n":2}', statuses=(status,))
    delivery = desk.open(keys="go-on", size=1)
    desk.poison.condemn(*changes(7), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(7, 8, 9, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(1, is_overtaken), (2, False)]


def test_where_keys_go_on_an_answer_that_was_lost_once_may_have_been_a_yes(desk: Desk) -> None:
    desk.receiver.turn(cut_rate=1.0)
    delivery = desk.open(keys="go-on", tries=100_000, size=2)
    desk.poison.condemn(*changes(7), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(7, 8, start=2)), PATIENCE)
    until(lambda: desk.events(DeliveryRetried))
    desk.receiver.turn(cut_rate=0.0, poison='"n":2}', statuses=(422,))
    until(lambda: delivery.drain(0.05))
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(1, True), (2, False)]


def test_what_it_takes_past_it_is_known_also_where_there_are_letters_of_other_keys(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":3}', statuses=(200,), names_poison=True)
    delivery = desk.open(size=4)
    desk.poison.condemn(*changes(99), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(1, 2, 2, 2, 2, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.arrived() == [2, 4, 5]
    assert [(one.change.position, one.is_overtaken) for one in desk.state.letters("orders")] == [(1, False), (3, True), (6, False)]


def test_a_pipeline_that_halts_at_poison_does_so_when_it_is_named(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":2}', statuses=(200,), names_poison=True)
    delivery = desk.open(then="halt")
    delivery.offer(to_batch(changes(1, 2)), PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"changes 2\.\.2 were not taken"):
        until(lambda: delivery.drain(0.05))
    assert delivery.delivered() is None


@PARALLEL
def test_where_keys_go_on_only_the_bad_change_is_parked_and_known_as_overtaken(desk: Desk, parallel: int) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,))
    delivery = desk.open(keys="go-on", parallel=parallel)
    delivery.offer(to_batch(changes(*(n % 50 for n in range(1, 121)))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert sorted(set(desk.arrived())) == [p for p in range(1, 121) if p != 7]
    [letter] = desk.state.letters("orders")
    assert (letter.change.position, letter.is_overtaken) == (7, True)


@PARALLEL
def test_dropped_changes_are_told_and_nothing_waits_for_them(desk: Desk, parallel: int) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,))
    delivery = desk.open("drop", parallel=parallel)
    delivery.offer(to_batch(changes(*(n % 50 for n in range(1, 121)))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert sorted(set(desk.arrived())) == [p for p in range(1, 121) if p != 7]
    assert desk.parked() == []
    assert [event.position for event in desk.events(ChangeDropped)] == [7]


@PARALLEL
@pytest.mark.parametrize("dials", [{"statuses": (500,)}, {"statuses": (404,)}, {"statuses": (422,)}, {"statuses": (503,)}])
def test_a_receiver_that_refuses_everything_is_waited_for_and_not_taken_for_poison(desk: Desk, parallel: int, dials: Any) -> None:
    desk.receiver.turn(fail_rate=1.0, **dials)
    delivery = desk.open(parallel=parallel)
    delivery.offer(to_batch(changes(*range(1, 41))), PATIENCE)
    desk.told.await_events(30)
    assert len(desk.events(DeliveryRetried)) > 10
    parked = desk.parked()
    assert len(parked) <= 10 + 3
    assert parked == [] or dials["statuses"] == (422,)
    desk.receiver.turn(fail_rate=0.0)
    until(lambda: delivery.drain(0.05))
    assert sorted(set(desk.arrived())) == [p for p in range(1, 41) if p not in parked]
    assert desk.parked() == parked


def test_a_receiver_that_is_gone_is_waited_for(desk: Desk, told: Any) -> None:
    with Receiver() as gone:
        port = gone.port
    desk.receiver.port = port
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(1, 41))), PATIENCE)
    told.await_events(20)
    assert desk.parked() == []
    with Receiver(port) as back:
        until(lambda: delivery.drain(0.05))
        assert [change["position"] for change in back.changes()] == list(range(1, 41))
        assert len(back.requests) == 2, "what nobody was reached with is not cut into pieces"


def test_a_lone_change_that_fails_for_no_final_reason_waits_until_another_one_is_taken(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":1}', statuses=(500,))
    delivery = desk.open()
    delivery.offer(to_batch(changes(1)), PATIENCE)
    desk.told.await_events(5)
    assert desk.parked() == []
    delivery.offer(to_batch(changes(1, 2, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.arrived()) == ([1, 2], [3])


def test_a_lone_change_that_is_refused_for_good_is_parked_at_once(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":1}', statuses=(422,))
    delivery = desk.open(tries="forever")
    delivery.offer(to_batch(changes(1)), PATIENCE)
    assert delivery.drain(PATIENCE)
    assert desk.parked() == [1]
    assert len(desk.receiver.requests) == 1
    [letter] = desk.state.letters("orders")
    assert letter.message.endswith("status 422; changes 1..1 were not taken in 1 tries")


def test_a_batch_that_is_too_large_for_the_receiver_is_cut_until_it_fits(desk: Desk) -> None:
    desk.receiver.turn(script=(413, 413))
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(1, 9))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.arrived() == list(range(1, 9))
    assert [len(request.changes()) for request in desk.receiver.requests] == [8, 4, 2, 2, 4]
    assert len({request.headers["idempotency-key"] for request in desk.receiver.requests}) == 5
    assert {request.headers["penstock-attempt"] for request in desk.receiver.requests} == {"1"}


def test_letters_are_met_again_after_a_crash_and_stay_single(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":3}', statuses=(422,))
    for _ in range(2):
        delivery = desk.open()
        delivery.offer(to_batch(changes(1, 2, 3, 1, 3)), PATIENCE)
        until(lambda delivery=delivery: delivery.drain(0.05))
        delivery.close()
    assert desk.parked() == [3, 5]
    assert desk.arrived() == [1, 2, 4, 1, 2, 4]


def test_one_poisoned_change_of_a_hundred_costs_few_requests(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":77}', statuses=(422,))
    delivery = desk.open(size=100)
    delivery.offer(to_batch(changes(*range(1, 101))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [77]
    assert len(desk.receiver.requests) <= 16


def test_a_receiver_that_names_what_it_refuses_is_believed_and_asked_only_once_more(desk: Desk) -> None:
    desk.receiver.turn(poison=',"n":7', statuses=(422,), names_poison=True)
    delivery = desk.open(size=100)
    delivery.offer(to_batch(changes(*range(1, 101))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [7, *range(70, 80)]
    assert desk.state.letters("orders")[0].message.endswith("changes 7..7 were not taken in 1 tries")
    assert [len(request.changes()) for request in desk.receiver.requests] == [100, 89]


def test_what_is_named_is_parked_while_the_rest_is_under_way_however_long_that_takes(
    desk: Desk, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", PATIENCE)
    desk.receiver.turn(poison='"n":7}', statuses=(422,), names_poison=True)
    delivery = desk.open(timeout=timedelta(days=1), bisections=0)  # a slow machine makes it seem far
    desk.poison.condemn(*changes(99), DeliveryExhausted("status 422"))
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as busy:
        busy.execute("begin immediate")
        delivery.offer(to_batch(changes(*range(101, 121), start=2)), PATIENCE)
        desk.receiver.wait_for(lambda: len(desk.receiver.requests) == 2, PATIENCE)
        until(lambda: select.select([delivery._senders[0].transport._http.sock], [], [], 0)[0])
        clock.step(timedelta(days=1))
        assert not delivery.drain(0.1)
        assert desk.parked() == [1]
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [1, 7]
    assert (len(desk.receiver.requests), desk.events(DeliveryRetried)) == (2, [])


def test_what_shares_a_row_with_what_is_named_waits_behind_it(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":3}', statuses=(422,), names_poison=True)
    delivery = desk.open()
    desk.poison.condemn(*changes(99), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(1, 2, 2, 3, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.arrived()) == ([1, 3, 4], [2, 5])


def test_what_shares_a_row_with_what_is_named_in_another_part_of_the_batch_waits_behind_it(desk: Desk) -> None:
    desk.receiver.turn(script=(500, 422), headers={"Penstock-Refused": "2"})
    delivery = desk.open(tries=1)
    desk.poison.condemn(*changes(99), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(7, 7, start=2)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.arrived()) == ([1, 2, 3], [])


def test_what_was_named_is_parked_though_the_end_comes_before_the_rest_is_sent(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,), names_poison=True, holds=True)
    delivery = desk.open()
    desk.poison.condemn(*changes(99), DeliveryExhausted("status 422"))
    delivery.offer(to_batch(changes(*range(101, 111), start=2)), PATIENCE)
    desk.receiver.wait_for(lambda: desk.receiver.held, PATIENCE)
    with ending(delivery):
        desk.receiver.turn(holds=False)
    assert (desk.parked(), len(desk.receiver.requests)) == ([1, 7], 1)


def test_what_a_receiver_names_and_was_not_sent_is_passed_over(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,), headers={"Penstock-Refused": "12, x, 7.1"})
    delivery = desk.open(tries=4)
    delivery.offer(to_batch(changes(*range(1, 9))), PATIENCE)
    desk.receiver.wait_for(lambda: len(desk.receiver.requests) > 1, PATIENCE)
    desk.receiver.turn(headers={})
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [7]
    assert set(desk.arrived()) == {1, 2, 3, 4, 5, 6, 8}


def test_poison_is_looked_for_while_others_go_on_and_what_shares_a_row_waits(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,), holds=True)
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(101, 121), *range(201, 219), 101, 107)), PATIENCE)
    desk.release_when_held(1)
    desk.release_when_held(2)
    assert list(range(21, 39)) in [request.positions() for request in desk.receiver.requests], "the next batch was not held up"
    desk.receiver.turn(holds=False)
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == [7, 40]
    assert desk.receiver.connections == 2
    first = {position: index for index, position in reversed(list(enumerate(desk.arrived())))}
    assert first[1] < first[39]
    assert_in_order(desk.receiver.changes())


def test_a_receiver_that_may_be_in_trouble_holds_up_everything_on_the_one_connection(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(500,), slow=0.01)
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(101, 161))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.receiver.connections) == ([7], 1)


def test_without_bisections_beside_others_everything_waits_for_the_one_that_is_open(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,))
    delivery = desk.open(bisections=0)
    delivery.offer(to_batch(changes(*range(101, 161))), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.receiver.connections) == ([7], 1)
    assert desk.arrived() == [p for p in range(1, 61) if p != 7]


def test_no_more_bisections_than_allowed_are_open_and_each_has_a_connection(desk: Desk) -> None:
    desk.receiver.turn(poison='5,"n":', statuses=(422,), holds=True)
    delivery = desk.open(bisections=2)
    delivery.offer(to_batch(changes(*range(1, 201))), PATIENCE)
    for count in (1, 2, 3):
        desk.release_when_held(count)
    desk.receiver.turn(holds=False)
    until(lambda: delivery.drain(0.05))
    assert desk.parked() == list(range(5, 201, 10))
    assert desk.receiver.connections == 3
    assert sorted(desk.arrived()) == [p for p in range(1, 201) if p % 10 != 5]


def test_the_rest_of_what_a_far_receiver_names_is_sent_beside_others(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,), names_poison=True, slow=0.02)
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(101, 121), *range(201, 220), 107)), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), desk.receiver.connections) == ([7, 40], 2)
    assert sorted(desk.arrived()) == [p for p in range(1, 40) if p != 7]


def test_the_end_comes_at_once_while_bisections_are_open(desk: Desk) -> None:
    desk.receiver.turn(poison='5,"n":', statuses=(422,), holds=True)
    delivery = desk.open()
    delivery.offer(to_batch(changes(*range(1, 101))), PATIENCE)
    desk.release_when_held(1)
    desk.release_when_held(2)
    desk.receiver.wait_for(lambda: len(desk.receiver.held) == 3, PATIENCE)
    with ending(delivery):
        desk.receiver.turn(holds=False)
    assert len(desk.receiver.requests) == 1 + 2 + 3
    delivery.close()
    assert len(desk.receiver.requests) == 1 + 2 + 3


def test_a_store_that_fails_in_a_bisection_beside_others_ends_the_delivery(desk: Desk, tmp_path: Path) -> None:
    desk.receiver.turn(poison='"n":7}', statuses=(422,))
    delivery = desk.open()
    with closing(sqlite3.connect(tmp_path / "state.db")) as spoilt:
        spoilt.execute("alter table dead_letters rename to lost")
    delivery.offer(to_batch(changes(*range(101, 141))), PATIENCE)
    with pytest.raises(StateInvalid, match="no such table"):
        until(lambda: delivery.drain(0.05))


@pytest.mark.parametrize("seed", range(6))
def test_rows_keep_their_order_whatever_is_refused_and_however_many_bisections_are_open(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    bad = {chance.randrange(40) for _ in range(4)}
    desk.receiver.turn(poison='"bad":1', statuses=(422,), slow=0.001, names_poison=seed % 2 == 1)
    given = [
        Change(p, Op.INSERT, "t", f'{{"id":{key}}}', None, f'{{"id":{key},"bad":{int(key in bad and p > 50)}}}', p)
        for p, key in enumerate((chance.randrange(40) for _ in range(400)), 1)
    ]
    delivery = desk.open(bisections=chance.choice([1, 3, 16]), parallel=chance.choice([1, 1, 3]), size=chance.choice([3, 10, 20]))
    for start in range(0, 400, 40):
        assert delivery.offer(to_batch(given[start : start + 40]), PATIENCE)
    until(lambda: delivery.drain(0.05))
    expected = {one.position for one in given if json.loads(one.key)["id"] in bad and one.position > 50}
    assert set(desk.parked()) == expected
    assert set(desk.arrived()) == {one.position for one in given} - expected
    assert_in_order(desk.receiver.changes())


def moved(position: int, old: int, new: int) -> Change:
    """An update that changes the key."""
    before, after = (f'{{"id":{key},"n":{position}}}' for key in (old, new))
    return Change(position, Op.UPDATE, "t", f'{{"id":{new}}}', before, after, position)


@PARALLEL
@pytest.mark.parametrize("names", [True, False])
def test_what_waits_for_a_change_of_key_that_waits_itself_is_parked_behind_it(desk: Desk, parallel: int, names: bool) -> None:
    desk.receiver.turn(poison='"n":1}', statuses=(422,), names_poison=names)
    delivery = desk.open(parallel=parallel)
    given = [*changes(12, 11), moved(3, 11, 12), *changes(11, 5, start=4), moved(6, 5, 11), *changes(5, 6, start=7)]
    delivery.offer(to_batch(given), PATIENCE)
    until(lambda: delivery.drain(0.05))
    assert (desk.parked(), sorted(desk.arrived())) == ([1, 3, 4, 6, 7], [2, 5, 8])


@pytest.mark.parametrize("named", ["2;3", "[2]", "2 three", "99", "2.1"])
def test_a_success_that_names_nobody_knows_what_is_a_failed_try(desk: Desk, named: str) -> None:
    desk.receiver.turn(headers={"Penstock-Refused": named})
    delivery = desk.open(tries=4)
    delivery.offer(to_batch(changes(1, 2, 3)), PATIENCE)
    desk.told.await_events(2)
    assert (delivery.delivered(), desk.parked()) == (None, [])
    assert "Penstock-Refused" in desk.events(DeliveryRetried)[0].reason
    desk.receiver.turn(headers={})
    until(lambda: delivery.drain(0.05))
    assert (delivery.delivered().position, desk.parked()) == (3, [])


def test_what_is_named_in_several_lines_of_the_head_is_one_list() -> None:
    refused, asked = (b"Penstock-Refused: 2", b"Penstock-Refused: 3"), (b"Retry-After: 7", b"Retry-After: 9")
    lines = [b"HTTP/1.1 200 OK", *refused, *asked, b"Content-Length: 0", b"", b""]
    here, there = socket.socketpair()
    with here, there, closing(ResponseParser(there)) as reply:
        here.sendall(b"\r\n".join(lines))
        reply.begin()
        assert reply.headers["penstock-refused"] == "2, 3"
        assert reply.headers["retry-after"] == "7"


def test_a_receiver_that_takes_nothing_and_names_everything_is_believed_only_so_often(desk: Desk) -> None:
    desk.receiver.turn(poison='"n":', statuses=(207,), names_poison=True)
    delivery = desk.open("drop")
    for start in range(1, 401, 20):
        delivery.offer(to_batch(changes(*range(start, start + 20), start=start)), PATIENCE)
    desk.told.await_events(40)
    assert desk.events(DeliveryRetried)
    dropped = len(desk.events(ChangeDropped))
    assert dropped <= 40
    desk.receiver.turn(poison="")
    until(lambda: delivery.drain(0.05))
    desk.poison.settle(400)
    assert len(desk.arrived()) == 400 - dropped
    assert desk.poison.dropped == dropped
