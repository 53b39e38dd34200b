"""What is made of answers: their connections, their bodies, and what a Retry-After header asks for."""

import socket
import threading
import time
from contextlib import closing, contextmanager, suppress
from email.utils import formatdate

import pytest

from deadline import PATIENCE
from penstock.delivery.transport import Accepted, Deferred, Refused
from penstock.sinks.webhook.answer import places_named, seconds_asked
from penstock.sinks.webhook.connection import Connection
from penstock.sinks.webhook.endpoint import parse


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0), ("120", 120), (" 7 ", 7), (None, None), ("soon", None), ("-1", None), ("1.5", None), ("", None)],
)
def test_seconds_are_read_and_nonsense_is_passed_over(header, seconds):
    assert seconds_asked(header) == seconds


@pytest.mark.parametrize(
    ("header", "places", "unread"),
    [
        ("77 80", {(77, 0), (80, 0)}, ""),
        ("77.2,80, ,77.2", {(77, 2), (80, 0)}, ""),
        ("x7 8- 9.", set(), "x7 8- 9."),
        ("77;80 81", {(81, 0)}, "77;80"),
        ("[77]", set(), "[77]"),
        (f"{'9' * 5000} 80", {(80, 0)}, "9" * 5000),
        ("\u0667", set(), "\u0667"),
        ("", set(), ""),
    ],
)
def test_what_was_refused_is_read_by_place_and_what_cannot_be_read_is_told(header, places, unread):
    assert places_named(header) == (places, unread)


@pytest.mark.parametrize("ahead", [90, -90])
def test_a_date_is_read_against_the_clock(ahead):
    before = time.time()
    date = int(before + ahead)
    asked = seconds_asked(formatdate(date, usegmt=True))
    assert max(0, date - time.time()) <= asked <= max(0, date - before)


def test_a_date_without_a_zone_is_in_utc():
    assert seconds_asked("Wed, 21 Oct 2015 07:28:00") == 0


@pytest.mark.parametrize(
    "header",
    [
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 99999999999 07:28:00 GMT",
        "Wed, 21 Oct 2015 99999999999:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +99999999999999",
        "Sat, 01 Jan 0001 00:00:00 +2300",
        "²",
        "9" * 400,
        "9" * 5000,
    ],
)
def test_a_header_out_of_all_bounds_does_no_harm(header):
    asked = seconds_asked(header)
    assert asked is None or asked >= 0


def posted(line, body, headers):
    line.post(body, headers)
    return line.answer()


@contextmanager
def speaking(*answers):
    """A server that gives these answers in turn, to requests on whatever connections; it counts those."""
    connections = []

    def serve():
        left = list(answers)
        while left:
            connection = server.accept()[0]
            connections.append(connection)
            with suppress(OSError):  # the other side may hang up before it has read all
                while left and connection.recv(1 << 16):
                    connection.sendall(left.pop(0))
                connection.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/", connections
        finally:
            thread.join(PATIENCE)
            for connection in connections:
                connection.close()


CHUNKED = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n5\r\nlater\r\n0\r\n\r\n"
PLAIN = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "outcome", "is_kept"),
    [
        (CHUNKED, Deferred("status 503: later", after=7), True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Accepted("status 200: ok"), True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, Accepted("status 204"), True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", Accepted("status 200: ok"), False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Accepted("status 200: ok"), False),
        (b"HTTP/1.1 103 Early\r\nRetry-After: 9\r\n\r\n" + PLAIN, Accepted("status 204"), True),
        (b"HTTP/1.1 200\r\nContent-Length:2\r\n\r\nok", Accepted("status 200: ok"), True),
        (b"HTTP/1.1 200 OK\nX: folded\n over\nContent-Length: 2\n\nok", Accepted("status 200: ok"), True),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Accepted("status 200: ok"),
            True,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", Accepted("status 200"), False),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Unasked\r\nRetry-After: 7\r\n\r\n",
            Accepted("status 200: ok"),
            False,
        ),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc", Refused("status 101"), False),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000, Refused("status 500: " + "x" * 120), False),
    ],
)
def test_a_connection_is_kept_where_the_whole_answer_was_read_and_given_up_where_not(first, outcome, is_kept):
    with speaking(first, PLAIN) as (url, connections), closing(Connection(parse(url), PATIENCE)) as line:
        assert posted(line, b"{}", {"X": "1"}) == outcome
        assert posted(line, b"{}", {}) == Accepted("status 204")
        assert len(connections) == (1 if is_kept else 2)
        line.close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"hello\r\n\r\n", "the answer is not HTTP: Expected HTTP/"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "the answer is not HTTP: Invalid character in Content-Length"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "the head of the answer is longer than 262144 bytes"),
        (b"HTTP/1.1 2", "the connection was closed within the answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the connection was closed within the answer"),
    ],
)
def test_an_answer_that_is_no_http_or_has_no_end_is_a_failed_request(said, reason):
    with speaking(said) as (url, _), closing(Connection(parse(url), PATIENCE)) as line:
        outcome = posted(line, b"{}", {})
        assert outcome.reason.startswith(reason)
        assert outcome == Refused(outcome.reason)


@pytest.mark.parametrize("body", [b"{}", b"x" * 50_000_000], ids=["never answers", "never reads"])
def test_a_request_ends_with_its_time_though_nobody_severs_it(body):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with closing(Connection(parse(url), 0.2)) as line:
            assert posted(line, body, {}) == Refused("no answer within 0.2 s")
