"""How many bytes go in a request, and what follows when they are too many for the receiver."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadline import PATIENCE
from penstock.change import Change, Op, to_batch
from penstock.delivery import queue
from penstock.delivery.settings import Batch
from penstock.errors import DeliveryExhausted
from penstock.event import DeliveryRetried
from penstock.receiver import LARGEST, MemoryStore
from penstock.receiver import Receiver as Judge
from penstock.retry import Retry
from penstock.text.size import Bytes, parse

MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)
TWICE = Retry(tries=2, min=MILLISECOND, max=MILLISECOND)


def sized(*lengths, row=None, letter="x"):
    """Changes with texts of these lengths."""
    images = [json.dumps({"v": letter * length}, ensure_ascii=False) for length in lengths]
    return to_batch(Change(n, Op.INSERT, "t", f'{{"id":{row or n}}}', None, one) for n, one in enumerate(images, 1))


def delivered(delivery, changes):
    assert delivery.offer(changes, wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    return delivery.delivered().position


def spans(receiver, *, taken=True):
    return [request.positions() for request in receiver.requests if request.is_taken == taken]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_batch_ends_before_the_change_that_would_make_it_too_large(receiver, deliver, parallel):
    delivery = deliver(receiver.url, batch=Batch(bytes=Bytes(1000), delay=DAY), parallel=parallel)
    assert delivered(delivery, sized(300, 300, 300, 5000, 10, 10)) == 6
    assert sorted(spans(receiver)) == [[1, 2], [3], [4], [5, 6]]


def test_bytes_are_counted_and_not_letters(receiver, deliver):
    delivery = deliver(receiver.url, batch=Batch(bytes=Bytes(1000), delay=DAY))
    assert delivered(delivery, sized(300, 300, letter="ü")) == 2
    assert spans(receiver) == [[1], [2]]


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_batch_that_is_too_large_for_the_receiver_goes_in_halves_without_a_try_under_halt(receiver, deliver, told, parallel):
    receiver.turn(largest=1000)
    delivery = deliver(receiver.url, batch=Batch(delay=DAY), retry=TWICE, parallel=parallel)
    assert delivered(delivery, sized(*[200] * 20)) == 20
    assert [n for span in spans(receiver) for n in span] == list(range(1, 21))
    assert all(event.wait_seconds == 0 and "413" in event.reason for event in told.events if isinstance(event, DeliveryRetried))
    refused = len(spans(receiver, taken=False))
    assert delivered(delivery, sized(*[200] * 20)) == 20
    assert len(spans(receiver, taken=False)) == refused  # further batches are small from the beginning


def test_batches_grow_again_when_requests_have_been_taken_for_long(receiver, deliver, monkeypatch):
    monkeypatch.setattr(queue, "GROWTH", 3)
    receiver.turn(script=(413, 413))
    delivery = deliver(receiver.url, batch=Batch(size=4, delay=DAY))
    delivered(delivery, sized(*[200] * 40))
    sizes = [len(span) for span in spans(receiver)]
    assert (sizes[0], max(sizes)) == (1, 4)
    assert [n for span in spans(receiver) for n in span] == list(range(1, 41))


def test_an_answer_413_that_names_changes_is_about_these(receiver, deliver):
    receiver.turn(largest=None, poison='"n":3}', statuses=(413,), names_poison=True)
    delivery = deliver(receiver.url, batch=Batch(delay=DAY), retry=TWICE)
    delivery.offer(to_batch(Change(n, Op.INSERT, "t", f'{{"id":{n}}}', None, f'{{"n":{n}}}') for n in range(1, 5)), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"changes 1\.\.4 were not taken in 2 tries"):
        delivery.drain(PATIENCE)
    assert spans(receiver, taken=False) == [[1, 2, 3, 4]] * 2


def test_halves_of_a_chained_batch_go_in_order_although_their_rows_differ(receiver, deliver):
    receiver.turn(largest=1000, script=(200,))
    delivery = deliver(receiver.url, batch=Batch(delay=DAY))
    assert delivered(delivery, sized(10)) == 1
    receiver.turn(script=(413, 500, 500))
    assert delivered(delivery, to_batch(Change(n, Op.INSERT, "t", f'{{"id":{n}}}') for n in range(2, 6))) == 5
    assert spans(receiver, taken=False) == [[2, 3, 4, 5], [2, 3], [2, 3]]
    assert spans(receiver) == [[1], [2, 3], [4, 5]]


@pytest.mark.parametrize("rows", ["one", "each its own"])
def test_a_judge_that_refuses_gaps_takes_all_halves(receiver, deliver, rows):
    judge = Judge(MemoryStore())
    receiver.turn(largest=700)
    delivery = deliver(receiver.url, batch=Batch(delay=DAY))
    delivered(delivery, sized(*[100] * 30, row=7 if rows == "one" else None))
    verdicts = [judge.accept(request.headers, request.body) for request in receiver.requests if request.is_taken]
    assert {verdict.status for verdict in verdicts} == {200}
    assert sum(len(verdict.changes) for verdict in verdicts) == 30


def test_one_change_that_is_too_large_alone_spends_the_tries_and_halts(receiver, deliver):
    receiver.turn(largest=1000)
    delivery = deliver(receiver.url, batch=Batch(delay=DAY), retry=TWICE)
    delivery.offer(sized(10, 10, 5000, 10), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"status 413; changes 3\.\.3 were not taken in 2 tries"):
        delivery.drain(PATIENCE)
    assert delivery.delivered().position == 2
    assert spans(receiver) == [[1, 2]]
    assert spans(receiver, taken=False)[-2:] == [[3], [3]]


def test_what_the_defaults_send_is_no_more_than_penstock_receiver_takes():
    assert Batch().bytes < LARGEST


@given(st.integers(1, 10**12))
def test_a_size_is_read_as_it_is_printed(number):
    assert parse(str(Bytes(number))) == number


@pytest.mark.parametrize(("text", "number"), [("512KB", 512_000), ("8MB", 8_000_000), ("1GiB", 1 << 30), ("7 B", 7)])
def test_sizes_have_a_number_and_a_unit(text, number):
    assert parse(text) == number


@pytest.mark.parametrize("text", ["", "8", "8mb", "-1MB", "0KB", "1.5MB", 8, None, "9" * 5000 + "MB"])
def test_what_is_no_size_is_refused_with_the_way_to_write_one(text):
    with pytest.raises(ValueError, match="is not a size: write a number from 1 on and a unit, such as 512KB, 8MB or 1GiB"):
        parse(text)
