"""How a webhook delivers: batches, order, repeats, and what it says of a receiver that takes nothing."""

import base64
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path

import pytest
from ending import ending

from deadline import PATIENCE, until
from penstock import failpoint
from penstock.change import Change, Lane, Op, to_batch
from penstock.delivery.settings import Batch
from penstock.errors import DeliveryExhausted
from penstock.event import DeliveryRetried
from penstock.retry import LONGEST_ASKED, Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.endpoint import parse
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing.receiver import Receiver, ReceiverProcess
from servers.ports import free_port

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)


def rows(*positions):
    return to_batch(
        Change(p, Op.INSERT, "orders", f'{{"id":{p}}}', None, f'{{"id":{p},"total":{p}.50}}', 1_767_225_600_000_000 + p * 1000)
        for p in positions
    )


def positions(receiver):
    return [request.positions() for request in receiver.requests]


def attempts(receiver):
    return [int(request.headers["penstock-attempt"]) for request in receiver.requests]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_three_changes_and_a_batch_size_of_three_make_one_request(receiver, deliver):
    delivery = deliver(receiver.url, batch=Batch(size=3, delay=DAY))
    assert delivery.offer(rows(10, 20, 30), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) >= 1, within=PATIENCE)
    assert positions(receiver) == [[10, 20, 30]]


def test_a_full_batch_goes_at_once_and_the_rest_after_the_delay_with_the_service_named_in_both(receiver, deliver):
    delivery = deliver(receiver.url, format="rqlite", service_id="shop", batch=Batch(size=2, delay=50 * MILLISECOND))
    delivery.offer(rows(1, 2, 3), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) >= 2, within=PATIENCE)
    assert positions(receiver) == [[1, 2], [3]]
    assert all(b'"service_id":"shop"' in request.body for request in receiver.requests)


def test_what_came_during_a_request_goes_together_in_the_next(receiver, deliver):
    receiver.turn(holds=True)
    delivery = deliver(receiver.url, batch=Batch(size=100, delay=MILLISECOND))
    delivery.offer(rows(1), wait=PATIENCE)
    receiver.wait_for(lambda: receiver.held, within=PATIENCE)
    for position in range(2, 12):
        delivery.offer(rows(position), wait=PATIENCE)
    receiver.turn(holds=False)
    assert delivery.drain(PATIENCE)
    assert positions(receiver) == [[1], list(range(2, 12))]


def test_draining_does_not_wait_for_the_delay(receiver, deliver):
    delivery = deliver(receiver.url, batch=Batch(size=100, delay=DAY))
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert positions(receiver) == [[1]]


def test_draining_gives_up_when_its_time_is_over(receiver, deliver):
    receiver.turn(holds=True)
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert not delivery.drain(0.05)
    receiver.turn(holds=False)


def test_a_full_buffer_takes_nothing_until_there_is_room(receiver, deliver):
    receiver.turn(fail_rate=1)
    delivery = deliver(receiver.url)
    offered = 0
    while delivery.offer(rows(*range(offered + 1, offered + 101)), wait=0.05):
        offered += 100
    assert 0 < offered <= 1200
    receiver.turn(fail_rate=0)
    assert delivery.offer(rows(offered + 1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert [change["position"] for change in receiver.changes()] == list(range(1, offered + 2))


# ── order and repeats ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_endpoint_that_starts_only_later_gets_everything(deliver, told):
    port = free_port()
    delivery = deliver(f"http://127.0.0.1:{port}/")
    delivery.offer(rows(1, 2, 3), wait=PATIENCE)
    told.await_events(1)
    with Receiver(port) as receiver:
        assert delivery.drain(PATIENCE)
        assert [change["position"] for change in receiver.changes()] == [1, 2, 3]


def test_what_was_undelivered_at_the_start_is_delivered_and_says_what_came_before(receiver, deliver):
    delivery = deliver(receiver.url, previous=4)
    delivery.offer(rows(5, 6, 7), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert [(change["previous"], change["position"]) for change in receiver.changes()] == [(4, 5), (5, 6), (6, 7)]


def test_positions_chain_over_several_offers_from_the_very_first(receiver, deliver):
    delivery = deliver(receiver.url)
    for batch in (rows(3), rows(), rows(5, 9)):
        delivery.offer(batch, wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert [change["previous"] for change in receiver.changes()] == [None, 3, 5]


def test_a_refused_batch_is_sent_again_with_the_same_bytes_and_the_next_number(receiver, deliver, told):
    receiver.turn(script=(500,))
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    first, second = receiver.requests
    assert first.body == second.body
    assert attempts(receiver) == [1, 2]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "orders-cafe-1-1"
    (event,) = told.events
    assert isinstance(event, DeliveryRetried)
    assert (event.pipeline, event.reason, event.tries) == ("orders", f"{receiver.url}: status 500", 1)


@pytest.mark.parametrize("rate", [0, 0.1, 0.5, 0.9])
def test_order_holds_and_repeats_are_whole_at_any_rate_of_failures(receiver, deliver, rate):
    receiver.turn(fail_rate=rate / 3, cut_rate=rate / 3, lose_rate=rate / 3, statuses=(500, 429, 503), seed=random.randrange(1000))
    delivery = deliver(receiver.url, batch=Batch(size=3, delay=MILLISECOND))
    for start in range(1, 61, 4):
        assert delivery.offer(rows(*range(start, start + 4)), wait=PATIENCE)
    assert delivery.drain(PATIENCE), receiver.dials
    taken = [request for request in receiver.requests if request.is_taken]
    assert sorted({p for request in taken for p in request.positions()}) == list(range(1, 61)), receiver.dials
    for one, other in pairwise(taken):
        assert other.body == one.body or other.positions()[0] == one.positions()[-1] + 1, receiver.dials
    assert delivery.delivered().position == 60


def test_delivered_moves_forward_over_what_was_answered_only(receiver, deliver):
    delivery = deliver(receiver.url)
    assert delivery.delivered() is None
    delivery.offer(rows(1, 2), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert delivery.delivered() == Change(2, Op.INSERT, "orders", '{"id":2}', None, '{"id":2,"total":2.50}', 1_767_225_600_002_000)
    receiver.turn(lose_rate=1)
    delivery.offer(rows(3), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) >= 2, within=PATIENCE)
    assert delivery.delivered().position == 2


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
def test_any_2xx_is_success(receiver, deliver, told, status):
    receiver.turn(status=status)
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert not told.events


@pytest.mark.parametrize("status", [304, 400, 404, 407, 409, 410, 429, 500, 503])
def test_any_other_status_is_tried_again(receiver, deliver, told, status):
    receiver.turn(script=(status,))
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert [event.reason for event in told.events] == [f"{receiver.url}: status {status}"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_status_about_who_we_are_is_tried_again_and_names_the_settings(receiver, deliver, told, status):
    receiver.turn(script=(status,))
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    said = f"{receiver.url}: status {status} (check the credentials: sink.auth, headers, signing or url)"
    assert [event.reason for event in told.events] == [said]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(receiver, deliver, status):
    with Receiver() as elsewhere:
        receiver.turn(script=(status,), headers={"Location": elsewhere.url})
        delivery = deliver(receiver.url)
        delivery.offer(rows(1), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert attempts(receiver) == [1, 2]
        assert not elsewhere.requests


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("https://anna:s3cret@example.org:8443/s3cret?s3cret#s3cret", "to the host 'example.org', which is not followed"),
        ("//example.org/x", "to the host 'example.org'"),
        ("/s3cret", "to another path, which"),
        ("http://[s3cret/", "to another path"),
        (None, "to nowhere"),
    ],
)
def test_a_redirect_is_told_with_its_host_alone(receiver, deliver, told, location, said):
    receiver.turn(script=(307,), headers={"Location": location} if location else {})
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    [event] = told.events
    assert f"status 307: a redirect {said}" in event.reason
    assert event.reason.endswith("write the final address in url")
    assert "cret" not in event.reason


def test_the_receiver_says_when_to_come_back(receiver, deliver, told):
    receiver.turn(script=(429,), headers={"Retry-After": "1"})
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    first, second = receiver.requests
    assert second.at - first.at >= 0.9
    assert told.events[0].wait_seconds == 1


def test_the_receiver_says_the_date_when_to_come_back(receiver, deliver, told):
    tomorrow = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    receiver.turn(script=(429,), headers={"Retry-After": tomorrow})
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(1)
    assert told.events[0].wait_seconds == LONGEST_ASKED
    delivery.close()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "header", [("Retry-After", "Wed, 21 Oct 99999999999 07:28:00 GMT"), ("Penstock-Refused", "9" * 5000)], ids=lambda one: one[0]
)
def test_a_header_of_an_answer_that_makes_no_sense_is_no_more_than_a_failed_try(receiver, deliver, told, header):
    receiver.turn(fail_rate=1, statuses=(422,), headers=dict([header]))
    delivery = deliver(receiver.url, retry=Retry(tries="forever", min=MILLISECOND, max=MILLISECOND))
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(3)
    receiver.turn(fail_rate=0, headers={})
    assert delivery.drain(PATIENCE)
    assert delivery.delivered().position == 1


def test_an_exhausted_batch_is_an_error_of_every_later_offer_and_what_was_delivered_before_is_still_told(receiver, deliver, told):
    delivery = deliver(receiver.url + "hook", retry=Retry(tries=3, min=MILLISECOND, max=MILLISECOND))
    delivery.offer(rows(1, 2, 3), wait=PATIENCE)
    drain(delivery)
    receiver.reset()
    receiver.turn(fail_rate=1, statuses=(503,))
    delivery.offer(rows(4, 5, 6), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    assert raised.value.message == f"{receiver.url}hook: status 503; changes 4..6 were not taken in 3 tries"
    for call in (lambda: delivery.offer(rows(7), wait=PATIENCE), lambda: delivery.drain(0)):
        with pytest.raises(DeliveryExhausted):
            call()
    delivery.close()
    assert delivery.delivered().position == 3
    assert attempts(receiver) == [1, 2, 3]
    assert [event.tries for event in told.events] == [1, 2]


def test_a_waiting_offer_learns_of_exhaustion_at_once(receiver, deliver):
    receiver.turn(fail_rate=1, holds=True)
    delivery = deliver(receiver.url, retry=Retry(tries=1))
    delivery.offer(rows(*range(1, 1500)), wait=PATIENCE)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(delivery.offer, rows(1500), wait=86_400)
        until(lambda: delivery._queue._progress._waiters)
        receiver.turn(holds=False)
        with pytest.raises(DeliveryExhausted):
            waiting.result(PATIENCE)


def test_a_receiver_that_never_answers_is_tried_again_after_the_timeout(receiver, deliver, told):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, timeout=200 * MILLISECOND)
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(1)
    assert told.events[0].reason == f"{receiver.url}: no answer within 0.2 s"
    receiver.turn(hang_rate=0)
    assert delivery.drain(PATIENCE)


def test_nobody_listening_is_named(deliver, told):
    url = f"http://127.0.0.1:{free_port()}/"
    deliver(url, retry=Retry(tries=2, min=MILLISECOND, max=MILLISECOND)).offer(rows(1), wait=PATIENCE)
    told.await_events(1)
    assert told.events[0].reason == f"{url}: Connection refused"


def serve(answer):
    """A server that lets `answer` deal with its one connection."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that a large request is still being sent when it is answered

    def run():
        with server, server.accept()[0] as connection:
            connection.settimeout(PATIENCE)
            answer(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}/", thread


def drain(delivery):
    while not delivery.drain(0.05):
        pass


def trickle(line, *, after=b"", begun=None):
    def trickle(connection):
        connection.recv(1 << 16)
        connection.sendall(after)
        if begun:
            begun.set()
        with suppress(OSError):  # until the other side hangs up
            while True:
                connection.sendall(line)
                time.sleep(0.02)

    return trickle


def test_interim_answers_that_trickle_in_for_ever_are_no_answer(deliver):
    url, server = serve(trickle(b"HTTP/1.1 100 Continue\r\n\r\n"))
    delivery = deliver(url, timeout=300 * MILLISECOND, retry=Retry(tries=1))
    delivery.offer(rows(1), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"no answer within 0\.3 s"):
        drain(delivery)
    server.join(PATIENCE)


def test_nothing_is_sent_while_it_is_not_known_that_the_lane_is_still_ours(receiver, told):
    current, asked = threading.Event(), threading.Event()

    def is_current():
        asked.set()
        return current.is_set()

    sink = WebhookSink(url=receiver.url, batch=Batch(size=1))
    with closing(sink.open(Assignment("orders", Lane("main"), 7, 0, "cafe", None, told, is_current=is_current))) as delivery:
        delivery.offer(rows(1, 2), wait=PATIENCE)
        assert asked.wait(PATIENCE)
        assert not delivery.drain(0.2)
        assert not receiver.requests
        current.set()
        drain(delivery)
        current.clear()
        delivery.offer(rows(3), wait=PATIENCE)
    assert positions(receiver) == [[1], [2]]


@pytest.mark.parametrize(
    ("scheme", "after", "line"),
    [("http", None, b""), ("https", None, b""), ("https", b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb", b"\x03")],
    ids=["a request that is not read", "a handshake that is not answered", "a handshake byte by byte"],
)
def test_whatever_hangs_the_timeout_holds_for_a_request_as_a_whole(deliver, scheme, after, line):
    leave = threading.Event()
    url, server = serve((lambda connection: leave.wait(PATIENCE)) if after is None else trickle(line, after=after))
    delivery = deliver(
        url.replace("http:", f"{scheme}:"), timeout=300 * MILLISECOND, retry=Retry(tries=1), batch=Batch(bytes=1 << 27)
    )
    body = f'{{"text":"{"x" * 20_000_000}"}}' if after is None else "{}"
    delivery.offer(to_batch([Change(1, Op.INSERT, "orders", "{}", None, body)]), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"no answer within 0\.3 s"):
        drain(delivery)
    leave.set()
    server.join(PATIENCE)


def test_a_success_whose_head_never_ends_is_none_since_what_it_has_not_taken_may_be_named_there(deliver):
    url, server = serve(trickle(b"X-Slow: 1\r\n", after=b"HTTP/1.1 200 OK\r\n"))
    delivery = deliver(url, timeout=300 * MILLISECOND, retry=Retry(tries=1))
    delivery.offer(rows(1), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match=r"no answer within 0\.3 s"):
        drain(delivery)
    server.join(PATIENCE)


def test_a_success_counts_though_the_rest_of_the_answer_trickles_in_for_ever(deliver, told, clock):
    begun = threading.Event()
    url, server = serve(trickle(b"slow", after=b"HTTP/1.1 200 OK\r\n\r\n", begun=begun))
    delivery = deliver(url, timeout=DAY)
    delivery.offer(rows(1), wait=PATIENCE)
    assert begun.wait(PATIENCE)
    assert not delivery.drain(0.1)
    clock.step(DAY)
    drain(delivery)
    assert delivery.delivered().position == 1
    assert not told.events
    server.join(PATIENCE)


def test_a_refusal_before_the_request_was_read_is_heard(deliver):
    def refuse(connection):
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        connection.shutdown(socket.SHUT_WR)

    url, server = serve(refuse)
    delivery = deliver(url, retry=Retry(tries=1))
    delivery.offer(to_batch([Change(1, Op.INSERT, "orders", "{}", None, f'{{"text":"{"x" * 10_000_000}"}}')]), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted, match="status 413: too large"):
        delivery.drain(PATIENCE)
    server.join(PATIENCE)


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_connection_serves_all_requests(receiver, deliver):
    delivery = deliver(receiver.url, batch=Batch(size=1))
    delivery.offer(rows(*range(1, 101)), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert len(receiver.requests) == 100
    assert receiver.connections == 1


def test_failures_that_were_answered_keep_the_connection(receiver, deliver):
    receiver.turn(script=(500, 404, 503))
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert receiver.connections == 1


def test_a_kept_connection_that_the_receiver_closed_meanwhile_is_no_failure(receiver, deliver, told):
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    receiver.hang_up()
    delivery.offer(rows(2), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    assert receiver.connections == 2
    assert not told.events


def test_a_kept_connection_that_closes_under_the_request_costs_one_more_send_and_no_try(receiver, deliver, told):
    receiver.turn(drops_kept=True)
    delivery = deliver(receiver.url, retry=Retry(tries=1))
    for position in range(1, 6):
        delivery.offer(rows(position), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
    assert attempts(receiver) == [1, 2, 2, 2, 2]
    assert receiver.connections == 5
    assert not told.events


def test_a_new_connection_that_closes_without_an_answer_is_a_failure(receiver, deliver, told):
    receiver.turn(cut_rate=1)
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(2)
    assert "closed without an answer" in told.events[0].reason
    receiver.turn(cut_rate=0)
    assert delivery.drain(PATIENCE)


def test_the_environment_s_proxies_are_not_asked(receiver, deliver, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    assert delivery.drain(PATIENCE)


# ── closing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_closing_between_two_tries_is_prompt_and_nothing_is_sent_afterwards(receiver, deliver, told):
    receiver.turn(fail_rate=1)
    delivery = deliver(receiver.url, retry=Retry(min=DAY, max=DAY))
    delivery.offer(rows(1), wait=PATIENCE)
    told.await_events(1)
    receiver.turn(fail_rate=0)
    delivery.close()
    assert delivery.delivered() is None
    assert len(receiver.requests) == 1


def test_closing_lets_the_request_under_way_finish_and_drops_the_rest(receiver, deliver):
    receiver.turn(holds=True)
    delivery = deliver(receiver.url, batch=Batch(size=1))
    delivery.offer(rows(1, 2, 3), wait=PATIENCE)
    receiver.wait_for(lambda: receiver.held, within=PATIENCE)
    with ending(delivery):
        receiver.turn(holds=False)
    assert positions(receiver) == [[1]]
    assert delivery.delivered().position == 1


def test_closing_waits_for_a_silent_receiver_no_longer_than_the_timeout(receiver, deliver, clock):
    receiver.turn(hang_rate=1)
    delivery = deliver(receiver.url, timeout=DAY)
    delivery.offer(rows(1), wait=PATIENCE)
    receiver.wait_for(lambda: len(receiver.requests) >= 1, within=PATIENCE)
    with ending(delivery) as closer:
        closer.join(0.2)
        assert closer.is_alive()
        clock.step(DAY)
    assert len(receiver.requests) == 1


# ── what travels ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_is_what_the_surface_says_byte_for_byte(receiver, deliver):
    delivery = deliver(receiver.url + "hooks/orders?v=1", previous=11)
    delivery.offer(rows(12), wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    (request,) = receiver.requests
    assert request.path == "/hooks/orders?v=1"
    assert request.body == (
        b'{"pipeline":"orders","changes":[{"position":12,"previous":11,"table":"orders","op":"insert","key":{"id":12},'
        b'"after":{"id":12,"total":12.50},"at":"2026-01-01T00:00:00.012Z"}]}'
    )
    headers = dict(request.headers)
    assert headers.pop("user-agent").startswith("penstock/")
    assert headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "accept-encoding": "identity",
        "content-length": str(len(request.body)),
        "content-type": "application/json",
        "penstock-pipeline": "orders",
        "penstock-lane": "main",
        "penstock-incarnation": "cafe",
        "penstock-epoch": "7",
        "penstock-attempt": "1",
        "idempotency-key": "orders-cafe-12-12",
    }


def test_a_name_cannot_break_out_of_its_header(receiver):
    assignment = Assignment("kä se\r\nX-Evil: 1", Lane("main"), 1, 0, "a/b", None, lambda event: None)
    with closing(WebhookSink(url=receiver.url, timeout=DAY).open(assignment)) as delivery:
        delivery.offer(rows(1), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
    headers = receiver.requests[0].headers
    assert headers["penstock-pipeline"] == "k%C3%A4%20se%0D%0AX-Evil%3A%201"
    assert headers["idempotency-key"] == "k%C3%A4%20se%0D%0AX-Evil%3A%201-a%2Fb-1-1"
    assert "x-evil" not in headers


def test_credentials_of_the_url_travel_in_a_header_and_show_nowhere(receiver, deliver, told):
    receiver.turn(fail_rate=1)
    url = f"http://anna:s%2Fcret@127.0.0.1:{receiver.port}/hook?token=t0ken"
    delivery = deliver(url, retry=Retry(tries=2, min=MILLISECOND, max=MILLISECOND))
    delivery.offer(rows(1), wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    assert base64.b64decode(receiver.requests[0].headers["authorization"].removeprefix("Basic ")) == b"anna:s/cret"
    shown = f"{raised.value} {told.events} {delivery._senders!r} {parse(url)!r} {WebhookSink(url=url)!r}"
    for secret in ("anna", "cret", "t0ken"):
        assert secret not in shown


class Pause:
    """Holds the sender at a failpoint."""

    def __init__(self, folder):
        self._folder, self._orders = Path(folder), []

    def at(self, point):
        self._orders.append(self._folder / point)
        self._orders[-1].write_text("pause")

    def wait(self):
        until(lambda: any(self._folder.glob("*.reached")))

    def release(self):
        for order in self._orders:
            order.unlink(missing_ok=True)


@pytest.fixture
def pause(deliver, tmp_path, monkeypatch):  # after `deliver`, so that its deliveries can end
    monkeypatch.setattr(failpoint, "_folder", str(tmp_path))
    pause = Pause(tmp_path)
    yield pause
    pause.release()


def test_a_pause_after_the_answer_leaves_the_change_uncounted(receiver, deliver, pause):
    pause.at("sink.sent")
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    pause.wait()
    assert len(receiver.changes()) == 1
    assert not delivery.drain(0)
    assert delivery.delivered() is None
    pause.release()
    assert delivery.drain(PATIENCE)


def test_a_close_while_paused_before_sending_sends_nothing(receiver, deliver, pause):
    pause.at("sink.sending")
    delivery = deliver(receiver.url)
    delivery.offer(rows(1), wait=PATIENCE)
    pause.wait()
    with ending(delivery):
        pause.release()
    assert not receiver.requests
    assert delivery.delivered() is None


def test_a_receiver_killed_and_started_again_gets_the_rest(deliver, tmp_path):
    port, out = free_port(), tmp_path / "requests"
    delivery = deliver(f"http://127.0.0.1:{port}/")
    with ReceiverProcess(out, port):
        delivery.offer(rows(1, 2), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
    delivery.offer(rows(3), wait=PATIENCE)
    with ReceiverProcess(out, port) as receiver:
        assert delivery.drain(PATIENCE)
        assert [request.positions() for request in receiver.requests] == [[1, 2], [3]]
