"""Several requests under way: each row in order, `delivered` without a gap, and one end for all."""

import json
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import repeat
from pathlib import Path

import pytest
from ending import ending
from living_table import History

from deadline import PATIENCE, until
from penstock import retry
from penstock.change import Change, Op, to_batch
from penstock.delivery.queue import Queue
from penstock.delivery.schedule import Ready
from penstock.delivery.settings import Batch
from penstock.errors import DeliveryExhausted
from penstock.retry import Retry
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing import oracle
from penstock.testing.receiver import Receiver

MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)
SINGLY = Batch(size=1, delay=0 * MILLISECOND)
ROOM = 1000 + 8


def change(position, key, op=Op.INSERT, **more):
    key = json.dumps({"id": key})
    return Change(position, op, more.pop("table", "t"), key, after=key, at=position * 1000, **more)


def rows(*keys, start=1):
    return to_batch(change(position, key) for position, key in enumerate(keys, start))


def taken(receiver):
    return {position for request in receiver.requests if request.is_taken for position in request.positions()}


def breaches(receiver, history):
    seen = oracle.deliveries(receiver.requests)
    found = oracle.order(seen) + oracle.completeness(seen, history.log())
    found += oracle.rebuilt(seen, {"t": history.table.values()})
    return found + [said for part in oracle.by_row(seen).values() for said in oracle.repeats(part) + oracle.chain(part)]


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 7])
def test_each_row_stays_in_order_and_nothing_is_lost_at_any_rate_of_failures_and_restarts(receiver, deliver, size):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    rates = {name: chance.choice((0, 0.1, 0.25)) for name in ("fail_rate", "cut_rate", "lose_rate")}
    receiver.turn(seed=seed, statuses=(500, 429), slow=0.001, drops_kept=chance.random() < 0.3, **rates)
    history, watermark = History(chance, 600), 0
    while watermark < 600:
        delivery = deliver(receiver.url, parallel=4, batch=Batch(size=size, delay=MILLISECOND), previous=watermark or None)
        goes_on_until = watermark + chance.choice((30, 150, 600))
        for at in range(watermark, min(goes_on_until, 600), 25):
            delivery.offer(to_batch(history.changes[at : at + 25]), wait=PATIENCE)
            watermark = recorded(delivery, watermark) if chance.random() < 0.5 else watermark
        if goes_on_until > 600:
            assert delivery.drain(PATIENCE)
            watermark = recorded(delivery, watermark)
        delivery.close()  # what it has delivered since the watermark was recorded comes again, as after a crash
    assert breaches(receiver, history) == [], (seed, receiver.dials)
    bodies = {(request.headers["idempotency-key"], request.body) for request in receiver.requests}
    assert len(bodies) == len({key for key, _ in bodies}), "a key names one content"


def test_each_row_stays_in_order_and_nothing_is_lost_however_often_the_process_is_killed(receiver, tmp_path):
    seed = random.randrange(1 << 32)
    receiver.turn(seed=seed, fail_rate=0.1, lose_rate=0.1, slow=0.002)
    history, watermark = History(random.Random(seed), 1000), tmp_path / "watermark"
    watermark.write_text("0")
    for kill_after in (40, 90, 60, None):
        before = len(receiver.requests)
        receiver.turn(holds=bool(kill_after))  # so that it cannot end before it is killed
        command = [sys.executable, str(Path(__file__).parent / "living_table.py"), receiver.url, str(seed), str(watermark)]
        with subprocess.Popen(command) as process:
            if kill_after:
                until(lambda most=before + kill_after: receiver.release() or len(receiver.requests) >= most)
                process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE) == (-signal.SIGKILL if kill_after else 0)
    assert breaches(receiver, history) == [], seed
    assert len(oracle.deliveries(receiver.requests)) > 1000, "kills cost repeats"


def recorded(delivery, watermark):
    durable = delivery.delivered()
    assert durable is None or durable.position >= watermark
    return durable.position if durable else watermark


def test_as_many_requests_as_said_are_under_way_and_no_row_twice(receiver, deliver):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, parallel=4, batch=SINGLY)
    delivery.offer(rows("a", "a", "b", "c", "c", "d", "e"), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) == 4, within=PATIENCE)
    assert sorted(request.positions() for request in receiver.requests) == [[1], [3], [4], [6]]
    assert receiver.connections == 4
    receiver.turn(hang_rate=0)
    receiver.hang_up()
    assert delivery.drain(PATIENCE)
    assert taken(receiver) == set(range(1, 8))


def test_changes_of_one_row_that_wait_together_go_together(receiver, deliver):
    delivery = deliver(receiver.url, parallel=4, batch=Batch(size=4, delay=DAY))
    delivery.offer(rows("a", "b", "a", "a"), wait=PATIENCE)
    receiver.wait_for(lambda: receiver.requests, within=PATIENCE)
    assert [request.positions() for request in receiver.requests] == [[1, 2, 3, 4]]
    assert receiver.requests[0].headers["idempotency-key"] == "orders-cafe-1-4"


def assert_the_third_goes_alone(receiver, deliver, changes):
    """Behind the first two and before the next two; the last one has nothing to do with it."""
    receiver.turn(holds=True)
    delivery = deliver(receiver.url, parallel=8, batch=SINGLY)
    delivery.offer(to_batch(changes), wait=PATIENCE)
    for together in ([1, 2, 6], [3], [4, 5]):
        receiver.wait_for(lambda together=together: len(receiver.held) >= len(together), within=PATIENCE)
        assert not delivery.drain(0.1)
        assert sorted(request.positions()[0] for request in receiver.held) == together
        receiver.release()
    assert delivery.drain(PATIENCE)


def test_an_update_that_changes_its_key_waits_for_both_rows_and_both_wait_for_it(receiver, deliver):
    moved = change(3, "b", Op.UPDATE, before='{"id": "a"}')
    changes = [change(1, "a"), change(2, "b"), moved, change(4, "a"), change(5, "b"), change(6, "c")]
    assert_the_third_goes_alone(receiver, deliver, changes)


def test_a_change_of_schema_waits_for_all_before_it_and_its_table_waits_for_it(receiver, deliver):
    changes = [change(1, 1), change(2, 2), Change(3, Op.SCHEMA, "t", "{}"), change(4, 3), change(5, 1), change(6, 1, table="u")]
    assert_the_third_goes_alone(receiver, deliver, changes)


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delivered_never_passes_a_gap_and_what_runs_ahead_is_bounded(receiver, deliver):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, parallel=8, batch=SINGLY)
    delivery.offer(rows(0), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) == 1, within=PATIENCE)
    receiver.turn(hang_rate=0)
    delivery.offer(rows(*range(1, 1501), start=2), wait=PATIENCE)
    assert not delivery.offer(rows(1501, start=1502), wait=0.01)
    receiver.wait_for(lambda: len(taken(receiver)) == ROOM - 1, within=PATIENCE)
    assert not delivery.drain(0.2)
    assert len(taken(receiver)) == ROOM - 1
    assert delivery.delivered() is None
    receiver.hang_up()
    assert delivery.drain(PATIENCE)
    assert delivery.delivered().position == 1501
    assert taken(receiver) == set(range(1, 1502))


def test_keys_tell_apart_batches_with_the_same_ends(receiver, deliver):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, parallel=2, batch=Batch(size=3, delay=0 * MILLISECOND))
    delivery.offer(rows("a"), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) == 1, within=PATIENCE)
    delivery.offer(rows("b", "a", "c", start=2), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) == 2, within=PATIENCE)
    keys = [request.headers["idempotency-key"] for request in receiver.requests]
    assert receiver.requests[1].positions() == [2, 4]
    assert keys[0] == "orders-cafe-1-1"
    assert keys[1].startswith("orders-cafe-2-4-")
    receiver.turn(hang_rate=0)
    receiver.hang_up()


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_row_that_is_refused_for_good_ends_all_and_what_was_durable_before_it_is_told(receiver, deliver):
    receiver.turn(poison='{"id": 5}', statuses=(422,), holds=True)
    delivery = deliver(receiver.url, parallel=4, batch=SINGLY, retry=Retry(tries=3, min=MILLISECOND, max=MILLISECOND))
    delivery.offer(rows(*range(1, 201)), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.held) == 4, within=PATIENCE)
    receiver.turn(holds=False)
    with pytest.raises(DeliveryExhausted, match=r"status 422; changes 5\.\.5 were not taken in 3 tries"):
        delivery.drain(PATIENCE)
    with pytest.raises(DeliveryExhausted):
        delivery.offer(rows(201, start=201), wait=PATIENCE)
    for sender in delivery._senders:
        sender.join(PATIENCE)
        assert not sender.is_alive(), "the others go on"
    assert delivery.delivered().position == 4
    assert {1, 2, 3, 4} <= taken(receiver)


def test_closing_gives_all_requests_under_way_their_time_at_once(receiver, deliver):
    receiver.turn(holds=True)
    delivery = deliver(receiver.url, parallel=8, batch=SINGLY)
    delivery.offer(rows(*range(1, 21)), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.held) == 8, within=PATIENCE)
    with ending(delivery):
        receiver.turn(holds=False)
    assert taken(receiver) == set(range(1, 9))
    assert delivery.delivered().position == 8


def test_closing_waits_for_silent_requests_one_timeout_altogether(receiver, deliver, clock):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, parallel=8, batch=SINGLY, timeout=DAY)
    delivery.offer(rows(*range(1, 21)), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) == 8, within=PATIENCE)
    with ending(delivery) as closer:
        closer.join(0.2)
        assert closer.is_alive()
        clock.step(DAY)
    assert delivery.delivered() is None


def test_a_rest_of_one_line_ends_when_another_gives_up(receiver, deliver, told, monkeypatch):
    monkeypatch.setattr(retry, "LONGEST_ASKED", 86_400.0)
    receiver.turn(script=(503,), headers={"Retry-After": "86400"})
    delivery = deliver(receiver.url, parallel=2, batch=SINGLY, retry=Retry(tries=2, min=MILLISECOND, max=MILLISECOND))
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(1)
    assert told.events[0].wait_seconds == 86_400
    receiver.turn(headers={}, fail_rate=1)
    delivery.offer(rows(2, start=2), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"changes 2\.\.2"):
        delivery.drain(PATIENCE)
    delivery.close()


def test_each_line_keeps_its_connection(receiver, deliver):
    receiver.turn(holds=True)
    delivery = deliver(receiver.url, parallel=3, batch=SINGLY)
    delivery.offer(rows(*range(1, 101)), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.held) == 3, within=PATIENCE)
    receiver.turn(holds=False)
    assert delivery.drain(PATIENCE)
    assert len(receiver.requests) == 100
    assert receiver.connections == 3


def test_format_rqlite_is_sent_side_by_side_too(receiver, deliver):
    delivery = deliver(receiver.url, parallel=4, format="rqlite", batch=SINGLY)
    delivery.offer(rows(*(n % 5 for n in range(50))), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    came = [position for request in receiver.requests for position in request.positions()]
    assert sorted(came) == list(range(1, 51))
    assert sorted(came, key=lambda p: p % 5) == sorted(came, key=lambda p: (p % 5, p))


@pytest.mark.parametrize("parallel", [1, 4])
def test_what_a_format_leaves_out_is_passed_over_and_makes_no_request(receiver, deliver, parallel):
    delivery = deliver(receiver.url, parallel=parallel, format="rqlite")
    altered = [Change(position, Op.SCHEMA, "t", "{}") for position in (1, 2, 4)]
    delivery.offer(to_batch(altered[:2]), wait=PATIENCE)
    assert delivery.drain(0)
    assert delivery.delivered() == altered[1]
    assert not receiver.requests
    receiver.turn(hang_rate=1)
    delivery.offer(to_batch([change(3, "a"), altered[2]]), wait=PATIENCE)
    receiver.wait_for(lambda: receiver.requests, within=PATIENCE)
    assert delivery.delivered() == altered[1]
    receiver.turn(hang_rate=0)
    receiver.hang_up()
    assert delivery.drain(PATIENCE)
    assert delivery.delivered() == altered[2]
    assert {tuple(request.positions()) for request in receiver.requests} == {(3,)}


def test_changes_of_one_position_stay_in_the_order_of_their_ordinals(deliver):
    with Receiver(slow=0.001) as receiver:
        changes = [change(1, n % 3, ordinal=n) for n in range(30)]
        delivery = deliver(receiver.url, parallel=4, batch=SINGLY)
        delivery.offer(to_batch(changes), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        came = [one["ordinal"] for one in receiver.changes()]
        assert sorted(came) == list(range(30))
        assert sorted(came, key=lambda n: n % 3) == sorted(came, key=lambda n: (n % 3, n))
        assert len({request.headers["idempotency-key"] for request in receiver.requests}) == 30
        assert delivery.delivered() == changes[-1]


def test_what_may_be_sent_because_a_batch_was_set_aside_is_sent_without_being_asked_for():
    sink = WebhookSink(url="http://h/", parallel=2, batch=Batch(size=10, delay=0 * MILLISECOND), bisections=4)
    queue, count = Queue(sink.pace), 3000
    changes = [change(position, position) for position in range(1, count + 1)]
    texts, named = ["text"] * count, [(("t", one.key),) for one in changes]
    queue.put(Ready(to_batch(changes), [one.place for one in changes], texts, named))
    head = queue.cut()
    while queue._schedule.waiting:
        queue.settle(queue.cut(), is_taken=True)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.cut)
        until(queue._turn.locked)
        assert queue.set_aside(head)
        try:
            assert waiting.result(PATIENCE)
        finally:
            queue.end()


def test_a_batch_of_which_some_rows_were_named_before_holds_all_of_its_rows_when_it_is_set_aside():
    queue = Queue(WebhookSink(url="http://h/", batch=Batch(size=3, delay=0 * MILLISECOND), bisections=1).pace)

    def put(start, *keys):
        changes = [change(position, key) for position, key in enumerate(keys, start)]
        queue.put(Ready(to_batch(changes), [one.place for one in changes], ["text"] * len(keys), repeat(())))

    def cut():
        return [one.at[0] for one in queue.more()]

    put(1, "a", "b", "c")
    first = queue.with_rows(queue.cut())
    assert queue.set_aside(first)
    put(4, "a", "d")
    assert cut() == [5]  # the rows of both are known now
    put(6, "e", "f")
    queue.settle(first)
    queue.close_aside()
    mixed = queue.cut()
    assert [one.at[0] for one in mixed] == [4, 6, 7]
    assert queue.set_aside(queue.with_rows(mixed))
    put(8, "e", "g")
    assert cut() == [9]
