"""The receiver that is shipped for tests: it records what came, and fails as its dials say."""

import gzip
import json
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from deadline import PATIENCE
from penstock.testing.dials import Dials, Reaction, judge
from penstock.testing.receiver import Receiver, ReceiverProcess
from penstock.testing.request import Record, Request, line_of

HTTP = urllib3.PoolManager(retries=False, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def _hang_up():
    yield
    HTTP.clear()


def body(*positions):
    return json.dumps({"pipeline": "orders", "changes": [{"position": position} for position in positions]})


def post(receiver, *positions, path=""):
    return HTTP.request("POST", receiver.url + path, body=body(*positions), headers={"X-Mark": "7"}).status


def test_a_request_is_recorded_as_it_came(receiver):
    assert post(receiver, 1, 2, path="hooks?x=1") == 200
    (request,) = receiver.requests
    assert (request.path, request.headers["x-mark"], request.body) == ("/hooks?x=1", "7", body(1, 2).encode())
    assert (request.is_taken, request.status, request.connection) == (True, 200, 1)
    assert request.positions() == [1, 2]


def test_refused_requests_are_recorded_and_their_changes_not_counted(receiver):
    receiver.turn(script=(503, 429), headers={"Retry-After": "3"})
    assert [post(receiver, 1), post(receiver, 1), post(receiver, 1)] == [503, 429, 200]
    assert [request.is_taken for request in receiver.requests] == [False, False, True]
    assert receiver.changes() == [{"position": 1}]


def test_an_answer_that_is_held_comes_when_its_dial_is_turned_and_others_come_at_once(receiver):
    receiver.turn(script=(503,), holds_answers=(503,))
    statuses = []
    held = Thread(target=lambda: statuses.append(post(receiver, 1)))
    held.start()
    receiver.wait_for(lambda: len(receiver._requests) == 1, PATIENCE)
    assert post(receiver, 2) == 200
    assert statuses == []
    receiver.turn(holds_answers=())
    held.join(PATIENCE)
    assert statuses == [503]
    assert receiver.changes() == [{"position": 2}]


def test_closing_after_acting_takes_and_does_not_answer(receiver):
    receiver.turn(lose_rate=1)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        post(receiver, 1)
    assert receiver.changes() == [{"position": 1}]


def test_closing_before_acting_takes_nothing(receiver):
    receiver.turn(cut_rate=1)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        post(receiver, 1)
    assert [request.is_taken for request in receiver.requests] == [False]


def test_a_position_that_was_taken_before_is_refused_if_asked_for(receiver):
    receiver.turn(refuses_repeats=True)
    assert [post(receiver, 1, 2), post(receiver, 2, 3), post(receiver, 3)] == [200, 409, 200]
    receiver.reset()
    assert post(receiver, 1) == 200


def test_a_request_with_poison_in_it_is_refused_again_and_again(receiver):
    receiver.turn(poison='"position": 2', statuses=(422,))
    assert [post(receiver, 1), post(receiver, 2), post(receiver, 2), post(receiver, 3)] == [200, 422, 422, 200]


def test_a_body_may_come_byte_by_byte(receiver):
    with socket.create_connection(("127.0.0.1", receiver.port)) as connection:
        for byte in b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello":
            connection.sendall(bytes([byte]))
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    assert receiver.requests[0].body == b"hello"


def test_requests_may_come_together(receiver):
    one = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", receiver.port)) as connection:
        connection.sendall(one + b"a" + one + b"b")
        receiver.wait_for(lambda: len(receiver.requests) == 2, within=PATIENCE)
    assert [request.body for request in receiver.requests] == [b"a", b"b"]


def test_a_request_is_held_until_it_is_released(receiver):
    receiver.turn(holds=True)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, receiver, 1)
        receiver.wait_for(lambda: receiver.held, within=PATIENCE)
        assert (receiver.requests, waiting.done()) == ([], False)
        receiver.release()
        assert waiting.result(PATIENCE) == 200
        again = pool.submit(post, receiver, 2)
        receiver.wait_for(lambda: receiver.held, within=PATIENCE)
        receiver.turn(holds=False)
        assert again.result(PATIENCE) == 200
    assert [request.positions() for request in receiver.requests] == [[1], [2]]


def test_waiting_in_vain_is_an_error(receiver):
    with pytest.raises(TimeoutError, match="0 requests arrived"):
        receiver.wait_for(lambda: len(receiver.requests) == 1, within=0.05)


@given(st.floats(0, 1, exclude_max=True))
def test_rates_share_out_what_happens(chance):
    dials = Dials(fail_rate=0.2, hang_rate=0.2, cut_rate=0.2, lose_rate=0.2, statuses=(500, 503))
    verdict = judge(dials, chance)
    expected = [(False, False), (False, False), (False, True), (True, True), (True, False)][min(4, int(chance * 5 + 1e-9))]
    assert (verdict.is_taken, verdict.is_closed) == expected
    assert judge(Dials(fail_rate=1, statuses=(429,)), chance) == Reaction(False, 429)
    assert judge(Dials(), chance) == Reaction(True, 200)


def test_the_same_seed_gives_the_same_faults():
    def statuses():
        with Receiver(fail_rate=0.5, seed=11) as receiver:
            return [post(receiver, position) for position in range(20)]

    first = statuses()
    assert first == statuses()
    assert set(first) == {200, 500}


def test_a_process_of_its_own_writes_a_line_for_each_request_before_it_answers(tmp_path):
    with ReceiverProcess(tmp_path / "out", script=[500]) as receiver:
        assert [post(receiver, 1), post(receiver, 1), post(receiver, 2)] == [500, 200, 200]
        receiver.process.kill()
        assert [(request.positions(), request.is_taken) for request in receiver.requests] == [
            ([1], False),
            ([1], True),
            ([2], True),
        ]
    assert receiver.process.returncode is not None


BODIES = [b'{"a": "\xc3\xa9 \\" \\n"}', b"[]", b'{"two":\n"lines"}', b'{"two":\r"lines"}', b'{no JSON, "body":1}', b'"text"', b""]


def test_bodies_are_written_byte_for_byte_and_a_file_of_json_is_lines_of_json(tmp_path):
    with ReceiverProcess(tmp_path / "out") as receiver:
        for content in BODIES:
            HTTP.request("POST", receiver.url, body=content, headers={"body": ',"body":'})
        compressed = gzip.compress(BODIES[0])
        HTTP.request("POST", receiver.url, body=compressed)
        assert [request.body for request in receiver.requests] == [*BODIES, BODIES[0]]
    lines = receiver.out.read_bytes().splitlines()
    assert [json.loads(line)["body"] for line in lines[:2]] == [json.loads(content) for content in BODIES[:2]]


def test_a_process_of_its_own_goes_with_its_parent(tmp_path):
    with ReceiverProcess(tmp_path / "out") as receiver:
        receiver.process.stdin.close()
        assert receiver.process.wait(PATIENCE) == 0


def test_the_program_runs_until_it_is_interrupted(tmp_path):
    command = [sys.executable, "-m", "penstock.testing.receiver", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        assert HTTP.request("POST", url, body=body(1)).status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert len(Record(tmp_path / "out").requests()) == 1


def test_a_line_that_is_not_whole_is_left_out(tmp_path):
    out = Path(tmp_path, "out")
    with ReceiverProcess(out) as receiver:
        post(receiver, 1)
    with out.open("ab") as file:
        file.write(b'{"at":1')
    assert [request.positions() for request in Record(out).requests()] == [[1]]
    assert Record(tmp_path / "none").requests() == []


def test_a_record_is_read_on_from_where_it_was_read_up_to(tmp_path):
    out = tmp_path / "out"
    lines = [b"".join(line_of(Request(float(number), 0, "/", {}, b""), b"[%d]" % number)) for number in range(3)]
    record = Record(out)
    assert record.requests() == []
    out.write_bytes(lines[0] + lines[1][:9])
    assert [request.at for request in record.requests()] == [0.0]
    out.write_bytes(b"x" * len(lines[0]) + lines[1] + lines[2])  # the first line is not read again
    assert [request.at for request in record.requests()] == [0.0, 1.0, 2.0]
