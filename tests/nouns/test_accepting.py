"""`penstock.receiver`: every change once, in order, from one leader at a time."""

import base64
import gzip
import json
import re
import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadline import PATIENCE
from penstock.change import Change, Lane, Op, to_batch
from penstock.delivery.settings import Batch
from penstock.receiver import MemoryStore, Receiver, SqliteStore, Store
from penstock.retry import Retry
from penstock.signature import key, named, signed
from penstock.sink import Assignment
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.sink import WebhookSink

SECRET, OTHER = (f"whsec_{base64.b64encode(letter * 32).decode()}" for letter in (b"a", b"b"))


@pytest.fixture(params=["memory", "sqlite", "sqlite by hand"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    level = None if request.param == "sqlite by hand" else "DEFERRED"
    with closing(sqlite3.connect(":memory:", isolation_level=level)) as connection:
        yield SqliteStore(connection)


def change(position, previous, row=1, **more):
    return {"position": position, "previous": previous, "table": "t", "op": "insert", "key": {"id": row}, **more}


def run(first, last):
    return [change(n, n - 1 or None) for n in range(first, last + 1)]


def request(changes, epoch=1, pipeline="orders", lane="main", incarnation="cafe"):
    headers = {"Penstock-Epoch": str(epoch), "Penstock-Lane": lane, "Penstock-Incarnation": incarnation}
    return headers, json.dumps({"pipeline": pipeline, "changes": changes}).encode()


def taken(receiver, *args, **more):
    verdict = receiver.accept(*request(*args, **more))
    return verdict.status, [one["position"] for one in verdict.changes]


def test_repeats_are_left_out_however_they_are_batched(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3)) == (200, [1, 2, 3])
    assert taken(receiver, run(1, 3)) == (200, [])
    assert taken(receiver, run(2, 5)) == (200, [4, 5])
    assert receiver.accept(*request(run(4, 6))).repeats == 2


HISTORY = [change(1, None), *(change(2, 1, ordinal=n) for n in (1, 2, 3)), change(3, 2), change(7, 3), change(8, 7)]
SENT = st.tuples(st.integers(0, len(HISTORY)), st.integers(1, 4), st.integers(1, 3))


@given(st.lists(SENT, max_size=12))
def test_the_receiver_that_docs_guarantees_shows_judges_as_ours_does(sent):
    page = Path(__file__).parents[2].joinpath("docs/guarantees.md").read_text()
    names = {}
    exec(re.search(r"```python\n(def take.*?)```", page, re.DOTALL)[1], names)
    kept, ours, applied = SimpleNamespace(epoch=0, place=None), Receiver(MemoryStore()), []
    for first, count, epoch in sent:
        changes, before = HISTORY[first : first + count], (kept.place, len(applied))
        if not changes:
            continue
        status = names["take"](SimpleNamespace(epoch=epoch, changes=changes), kept, applied.append)
        if status != 200:  # as the page says
            kept.place, applied = before[0], applied[: before[1]]
        verdict = ours.accept(*request(changes, epoch))
        assert (status, applied[before[1] :]) == (verdict.status, list(verdict.changes))


def test_a_gap_is_refused_and_says_what_is_missing(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3)) == (200, [1, 2, 3])
    verdict = receiver.accept(*request(run(5, 6)))
    assert (verdict.status, verdict.changes) == (409, ())
    assert verdict.reason.startswith("position 4 is missing before 5: the last one here is 3")
    assert taken(receiver, [change(4, 3), change(6, 5)])[0] == 409
    assert taken(receiver, run(4, 6)) == (200, [4, 5, 6])


def test_what_was_filtered_out_is_no_gap(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3)) == (200, [1, 2, 3])
    assert taken(receiver, [change(90, 3), change(95, 90)]) == (200, [90, 95])


def test_a_lower_epoch_is_refused_also_when_the_higher_one_was_behind_a_gap(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3), epoch=3) == (200, [1, 2, 3])
    assert taken(receiver, run(9, 9), epoch=4)[0] == 409
    verdict = receiver.accept(*request(run(4, 4), epoch=3))
    assert (verdict.status, verdict.reason) == (409, "epoch 3 is over: epoch 4 has begun")
    assert taken(receiver, run(4, 4), epoch=4) == (200, [4])


def test_pipelines_lanes_and_incarnations_are_apart_and_epochs_are_of_a_pipeline(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3), epoch=5) == (200, [1, 2, 3])
    for other in ({"lane": "x"}, {"incarnation": "beef"}):
        assert taken(receiver, run(1, 3), epoch=4, **other)[0] == 409
        assert taken(receiver, run(1, 3), epoch=5, **other) == (200, [1, 2, 3])
    assert taken(receiver, run(1, 3), epoch=1, pipeline="a/b") == (200, [1, 2, 3])


def test_changes_of_one_position_are_told_apart_by_their_ordinals(store):
    receiver = Receiver(store)
    some = [change(7, None, ordinal=1), change(7, 7, ordinal=2)]
    assert taken(receiver, some) == (200, [7, 7])
    assert taken(receiver, [*some, change(7, 7, ordinal=3)]) == (200, [7])


def test_a_range_that_is_read_again_at_a_later_position_is_no_gap(store):
    """After a crash a sender begins at its watermark, which may lie before what was sent."""
    receiver = Receiver(store)
    assert taken(receiver, [change(7, 3, ordinal=n) for n in (1, 2)]) == (200, [7, 7])
    assert taken(receiver, [change(9, 3, ordinal=n) for n in (1, 2)]) == (200, [9, 9])


def test_what_failed_while_it_was_applied_comes_again(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 2)) == (200, [1, 2])
    with suppress(RuntimeError), receiver.accepting(*request(run(3, 4), epoch=2)):
        raise RuntimeError("the disk is full")
    assert taken(receiver, run(3, 4)) == (200, [3, 4])


def test_what_is_forgotten_is_taken_anew_but_not_from_a_deposed_leader(store):
    receiver = Receiver(store)
    assert taken(receiver, run(1, 3), epoch=2) == (200, [1, 2, 3])
    assert taken(receiver, run(1, 3), pipeline="orders2") == (200, [1, 2, 3])
    receiver.forget("orders")
    assert taken(receiver, run(2, 3), epoch=1)[0] == 409
    assert taken(receiver, run(2, 3), epoch=2) == (200, [2, 3])
    assert taken(receiver, run(2, 3), pipeline="orders2") == (200, [])


def test_a_pipeline_that_lost_its_state_counts_epochs_from_the_start_when_the_receiver_is_told(store):
    receiver = Receiver(store)
    for name in ("orders", "orders2"):
        assert taken(receiver, run(1, 3), epoch=7, pipeline=name) == (200, [1, 2, 3])
    receiver.forget("orders", epoch=True)
    assert taken(receiver, run(1, 3), epoch=1) == (200, [1, 2, 3])
    assert taken(receiver, run(1, 3), epoch=1, pipeline="orders2")[0] == 409


def test_by_row_a_change_may_be_overtaken_by_one_of_another_row_and_none_comes_twice(store):
    receiver = Receiver(store, by="row")
    assert taken(receiver, [change(2, 1, row=2), change(4, 3, row=2)]) == (200, [2, 4])
    assert taken(receiver, [change(1, None), change(3, 2)]) == (200, [1, 3])
    assert taken(receiver, [change(1, None), change(2, 1, row=2), change(5, 4)]) == (200, [5])


def test_by_row_an_update_that_changes_the_key_is_of_both_rows(store):
    receiver = Receiver(store, by="row")
    moved = change(4, 3, row=2, op="update", before={"id": 1, "n": 3})
    assert taken(receiver, [change(5, 4, row=1)]) == (200, [5])
    assert taken(receiver, [moved]) == (200, []), "it would take away what has come to its old row since"
    assert taken(receiver, [moved | {"position": 6}, change(5, 4, row=1), change(7, 6, row=1)]) == (200, [6, 7])


@pytest.mark.parametrize("wrong", [{"by": "x"}, {"largest": -1}])
def test_what_a_receiver_cannot_be_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match="it must be"):
        Receiver(MemoryStore(), **wrong)


def test_with_sqlite_changes_and_their_record_are_one_transaction(tmp_path: Path):
    def opened():
        db = sqlite3.connect(tmp_path / "shop.db")
        return closing(db), Receiver(SqliteStore(db)), db

    end, receiver, db = opened()
    with end:
        db.execute("create table orders (id integer primary key)")
        with receiver.accepting(*request(run(1, 2))) as verdict:
            db.executemany("insert into orders values (?)", [[one["position"]] for one in verdict.changes])
        db.execute("begin immediate")
        assert receiver.accept(*request(run(3, 3))).changes
        db.execute("insert into orders values (3)")
        db.rollback()
    end, receiver, db = opened()
    with end:
        assert db.execute("select id from orders").fetchall() == [(1,), (2,)]
        assert taken(receiver, run(1, 3)) == (200, [3])


def test_with_sqlite_what_could_not_be_committed_is_undone_and_nothing_later_is_lost_with_it(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        receiver = Receiver(SqliteStore(db))
        db.execute("create table customers (id integer primary key)")
        db.execute("create table orders (id integer primary key, customer references customers deferrable initially deferred)")
        db.execute("pragma foreign_keys = on")

        def take(first: int) -> None:
            with receiver.accepting(*request(run(first, first))) as verdict:
                db.executemany("insert into orders values (?, 1)", [[one["position"]] for one in verdict.changes])

        with pytest.raises(sqlite3.IntegrityError):
            take(1)
        assert not db.in_transaction
        db.execute("insert into customers values (1)")
        db.commit()
        take(1)
        take(2)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        assert db.execute("select id from orders").fetchall() == [(1,), (2,)]


class Autocommitting(sqlite3.Connection):
    """Commits and rolls back as a connection with `autocommit=True` does from Python 3.12 on: not at all."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


def test_with_sqlite_a_connection_in_autocommit_has_transactions_too(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None, factory=Autocommitting)) as db:
        receiver = Receiver(SqliteStore(db))
        assert taken(receiver, run(1, 1)) == (200, [1])
        assert not db.in_transaction
        with pytest.raises(ZeroDivisionError), receiver.accepting(*request(run(2, 2))):
            raise ZeroDivisionError
        assert not db.in_transaction
        with receiver.accepting(*request(run(2, 2))) as verdict:
            db.execute("commit")  # by the code that applies the changes
        assert len(verdict.changes) == 1


requests = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(0, 4)), max_size=40)


@pytest.mark.parametrize("by", ["lane", "row"])
@given(sent=requests)
def test_whatever_two_leaders_send_in_whatever_order_one_epoch_at_a_time_is_accepted_and_nothing_twice(by, sent):
    receiver, epochs, positions = Receiver(MemoryStore(), by=by), [], [1]
    assert taken(receiver, run(1, 1)) == (200, [1])
    for epoch, first, more in sent:
        status, fresh = taken(receiver, run(first, first + more), epoch=epoch)
        epochs += [epoch] if status == 200 else []
        positions += fresh
    assert epochs == sorted(epochs)
    assert positions == (list(range(1, len(positions) + 1)) if by == "lane" else sorted(set(positions)))


def test_leaders_that_send_at_the_same_time_are_accepted_one_epoch_after_the_other(tmp_path: Path):
    log: list[int] = []

    def lead(epoch):
        with closing(sqlite3.connect(tmp_path / "receiver.db", timeout=PATIENCE)) as db:
            db.execute("pragma synchronous = off")
            receiver = Receiver(SqliteStore(db))
            for first in range(1, 60):
                with receiver.accepting(*request(run(first, first), epoch=epoch)) as verdict:
                    log.extend([epoch] * (verdict.status == 200))

    leaders = [Thread(target=lead, args=[epoch]) for epoch in (1, 2, 3)]
    for leader in leaders:
        leader.start()
    for leader in leaders:
        leader.join()
    assert log == sorted(log)
    assert log[-1] == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=30))
def test_by_row_each_change_is_taken_once_and_each_row_in_order_whatever_is_repeated(steps):
    """Senders keep each row in order, and may repeat what they sent of it."""
    receiver, applied = Receiver(MemoryStore(), by="row"), []
    rows = {row: [change(n, n - 1, row=row) for n in range(1, 20) if n % 3 == row] for row in range(3)}
    sent = dict.fromkeys(rows, 0)
    for row, back in [*steps, *((one, 0) for one in rows for _ in rows[one])]:
        applied += receiver.accept(*request(rows[row][max(0, sent[row] - back) : sent[row] + 1])).changes
        sent[row] += 1
    assert sorted(one["position"] for one in applied) == list(range(1, 20))
    for row, changes in rows.items():
        assert [one for one in applied if one["key"]["id"] == row] == changes


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({"webhook-signature": None}, 401, "not signed"),
        ({"webhook-timestamp": None}, 401, "not signed"),
        ({"webhook-timestamp": "soon"}, 401, "cannot be read"),
        ({"webhook-timestamp": "-5"}, 401, "cannot be read"),
        ({"webhook-timestamp": -301}, 401, "from another time"),
        ({"webhook-timestamp": 400}, 401, "from another time"),
        ({"webhook-timestamp": -5}, 401, "does not match"),
        ({"webhook-id": "other"}, 401, "does not match"),
        ({"webhook-signature": "v1,ä"}, 401, "does not match"),
        ({"webhook-signature": "v1a,xyz v1,"}, 401, "does not match"),
        ({}, 200, ""),
    ],
)
def test_a_signature_must_be_there_fit_and_be_of_now(headers, status, said):
    """A number is so many seconds from now."""
    given, body = request(run(1, 1))
    now = int(time.time())
    altered = {name: str(now + value) if isinstance(value, int) else value for name, value in headers.items()}
    signature = signed([key(OTHER), key(SECRET)], named("a-1", given), body, now) | altered
    verdict = Receiver(MemoryStore(), secret=SECRET).accept(given | {k: v for k, v in signature.items() if v is not None}, body)
    assert verdict.status == status
    assert said in verdict.reason


def test_another_body_or_another_secret_is_refused():
    given, body = request(run(1, 1))
    headers = given | signed([key(SECRET)], named("a-1", given), body, int(time.time()))
    assert Receiver(MemoryStore(), secret=[OTHER, SECRET]).accept(headers, body).status == 200
    assert Receiver(MemoryStore(), secret=OTHER).accept(headers, body).status == 401
    assert Receiver(MemoryStore(), secret=SECRET).accept(headers, body.replace(b"insert", b"delete")).status == 401


@pytest.mark.parametrize(
    "altered",
    [
        {"Penstock-Epoch": "1000000000000000000"},
        {"Penstock-Epoch": "2"},
        {"Penstock-Lane": "other"},
        {"Penstock-Incarnation": "other"},
        {"Penstock-Redriven": "true"},
        {"Penstock-Pipeline": "other"},
        {"Penstock-Lane": "main\npenstock-incarnation:cafe"},
    ],
)
def test_a_signed_request_that_is_replayed_with_altered_headers_is_refused(altered):
    given, body = request(run(1, 1))
    signature, receiver = signed([key(SECRET)], named("a-1", given), body, int(time.time())), Receiver(MemoryStore(), secret=SECRET)
    verdict = receiver.accept(given | signature | altered, body)
    assert (verdict.status, "does not cover the headers" in verdict.reason) in {(401, True), (400, False)}
    assert receiver.accept(given | signature, body).status == 200


def test_an_empty_header_which_the_digest_does_not_see_makes_no_redrive():
    given, body = request(run(1, 1))
    headers = given | signed([key(SECRET)], named("a-1", given), body, int(time.time()))
    receiver = Receiver(MemoryStore(), secret=SECRET)
    assert receiver.accept(headers | {"Penstock-Redriven": ""}, body).repeats == 0
    assert receiver.accept(headers, body).repeats == 1


def test_a_signature_that_covers_no_headers_is_refused():
    given, body = request(run(1, 1))
    headers = given | signed([key(SECRET)], "a-1", body, int(time.time()))
    assert Receiver(MemoryStore(), secret=SECRET).accept(headers, body).status == 401


def test_a_secret_that_cannot_work_is_refused_at_once():
    with pytest.raises(ValueError, match="does not begin with whsec_"):
        Receiver(MemoryStore(), secret="s3cret")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'"x"',
        b"[" * 100_000,
        b'{"pipeline":5,"changes":[]}',
        b'{"pipeline":"\\ud800","changes":[{"position":1,"previous":null,"table":"t","key":{}}]}',
        b'{"pipeline":"p","changes":{}}',
        b'{"pipeline":"p","changes":[5]}',
        b'{"pipeline":"p","changes":[{}]}',
        b'{"pipeline":"p","changes":[{"position":"1","previous":null,"table":"t","key":{}}]}',
        b'{"pipeline":"p","changes":[{"position":true,"previous":null,"table":"t","key":{}}]}',
        b'{"pipeline":"p","changes":[{"position":1,"previous":"0","table":"t","key":{}}]}',
        b'{"pipeline":"p","changes":[{"position":1,"previous":null,"ordinal":"2","table":"t","key":{}}]}',
        b'{"pipeline":"p","changes":[{"position":1,"previous":null,"table":"t","key":5}]}',
        b'{"node_id":"p","payload":[]}',
        b'{"pipeline":"p","changes":[' + b"9" * 5000 + b"]}",
    ],
    ids=lambda body: repr(body[:60]),
)
def test_a_body_that_is_not_of_the_format_is_refused(body):
    verdict = Receiver(MemoryStore()).accept(request([])[0], body)
    assert (verdict.status, verdict.reason) == (400, "the body is not of format penstock")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Penstock-Epoch": ""}, "the header Penstock-Epoch is missing"),
        ({"Penstock-Epoch": "-1"}, "the header Penstock-Epoch is not a number"),
        ({"Penstock-Epoch": "²"}, "the header Penstock-Epoch is not a number"),
        ({"Penstock-Epoch": "9" * 5000}, "the header Penstock-Epoch is not a number"),
        ({"Penstock-Lane": ""}, "the header Penstock-Lane is missing"),
        ({"Penstock-Incarnation": ""}, "the header Penstock-Incarnation is missing"),
    ],
)
def test_a_header_that_is_missing_or_nonsense_is_refused(headers, said):
    given, body = request(run(1, 1))
    verdict = Receiver(MemoryStore()).accept(given | headers, body)
    assert verdict.status == 400
    assert said in verdict.reason


def test_compressed_bodies_are_read_and_others_refused():
    receiver = Receiver(MemoryStore(), largest=10_000)
    headers, body = request(run(1, 2))
    for encoding, content, status in (
        ("gzip", gzip.compress(body), 200),
        ("GZIP", gzip.compress(body), 200),
        ("gzip", body, 400),
        ("gzip", gzip.compress(body)[:-9], 400),
        ("gzip", gzip.compress(bytes(10_001)), 413),
        ("identity", bytes(10_001), 413),
        ("br", body, 415),
    ):
        assert receiver.accept(headers | {"content-encoding": encoding}, content).status == status


def test_a_bomb_is_not_unpacked_to_find_out_how_large_it_is():
    receiver, bomb = Receiver(MemoryStore(), largest=10_000), gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        assert receiver.accept({"content-encoding": "gzip"}, bomb).status == 413
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_probe_without_changes_is_welcome():
    assert Receiver(MemoryStore()).accept({}, b'{"pipeline":"orders","changes":[]}').status == 200


@pytest.fixture
def serving() -> Iterator[Callable[[Receiver, list], str]]:
    """A real server round a receiver, which loses every third answer."""
    servers = []

    def serve(receiver, applied):
        class Handler(BaseHTTPRequestHandler):
            protocol_version, count = "HTTP/1.1", 0

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.accepting(self.headers, body) as verdict:
                    applied.extend(verdict.changes)
                    Handler.count += 1
                    is_lost = Handler.count % 3 == 0
                self.send_response(503 if is_lost else verdict.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("by", "parallel"), [("lane", 1), ("row", 4)])
def test_over_http_with_answers_lost_each_change_is_applied_once(serving, by, parallel):
    applied: list = []
    url = serving(Receiver(MemoryStore(), by=by, secret=SECRET), applied)
    sink = WebhookSink(
        url=url,
        timeout=PATIENCE * Retry().min,
        parallel=parallel,
        batch=Batch(size=3),
        compression="gzip",
        signing=Signing(secret=SECRET),
        retry=Retry(tries="forever", min=0.001 * Retry().min, max=0.001 * Retry().max),
    )
    delivery = sink.open(Assignment("orders", Lane("main"), 1, 0, "cafe", None, lambda event: None))
    delivery.offer(to_batch(Change(n, Op.INSERT, "t", f'{{"id":{n % 7}}}', None, "{}") for n in range(1, 101)), PATIENCE)
    assert delivery.drain(PATIENCE)
    delivery.close()
    assert sorted(one["position"] for one in applied) == list(range(1, 101))
    for row in range(7):
        positions = [one["position"] for one in applied if one["key"]["id"] == row]
        assert positions == sorted(positions)
