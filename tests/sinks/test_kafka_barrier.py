"""The barrier: a real table, a real broker, and a producer that fails now and then."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from threading import Event as Flag
from threading import Thread
from typing import Any

import confluent_kafka as kafka
import psycopg
import pytest

from deadline import PATIENCE, until
from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.errors import DeliveryExhausted, PenstockError, TermLost
from penstock.event import Event, MessagesReturned
from penstock.following import follow
from penstock.letter import DeadLetter
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import Poison
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.kafka import barrier
from penstock.sinks.kafka.barrier import CONFIRM_SECONDS, BarrierDelivery
from penstock.sinks.kafka.sink import KafkaSink
from penstock.source import Stamp
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.mark.source import LANE, MarkSource
from servers.broker import Broker
from servers.postgres import PostgresServer

QUICK = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=50))
PRODUCER = kafka.Producer
RATE = 0.02
"""How many of a producer's calls are not made, and of how many deliveries a lie is told."""


class Faulty:
    """A real producer, some of whose calls fail: some are not made, and of as many a failure is reported that was none."""

    def __init__(self, settings: dict[str, Any], liar: Iterator[bool] | None = None) -> None:
        self._inner, self._random, self._liar = PRODUCER(settings), random.Random(7), liar
        self.poll, self.flush, self.purge = self._inner.poll, self._inner.flush, self._inner.purge

    def produce(self, *message: Any, on_delivery: Callable[[Any, Any], None], **about: Any) -> None:
        if self._liar is None and self._random.random() < RATE:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT, "injected"))
        lies = self._random.random() < RATE if self._liar is None else next(self._liar, False)
        lie = kafka.KafkaError(kafka.KafkaError._MSG_TIMED_OUT, "injected")
        self._inner.produce(*message, on_delivery=lambda error, told: on_delivery(lie if lies else error, told), **about)


class Nowhere:
    """Letters that nobody keeps: for policies that drop."""

    def holds(self, rows: Any = None) -> tuple[()]:
        return ()


class Drawer(Nowhere):
    """Keeps letters, and notes which rows were there when it was asked to secure them."""

    def __init__(self, look: Callable[[], list[int]]) -> None:
        self.letters, self.seen, self._look = list[DeadLetter](), list[list[int]](), look

    def park(self, letters: Sequence[DeadLetter]) -> None:
        self.letters += letters

    def secure(self) -> None:
        self.seen.append(self._look())


class Line:
    """A table, a topic, and whoever carries the one to the other."""

    def __init__(self, dsn: str, broker: Broker, then: Any = "halt", **config: Any) -> None:
        self.dsn, self.broker, self.topic = dsn, broker, broker.create(partitions=2, config={"max.message.bytes": "3000"})
        self.source, self.then = MarkSource(database=dsn, table=self.topic.replace("-", "_")), then
        chosen = {"bootstrap.servers": broker.servers, "topic.metadata.propagation.max.ms": 500, "message.max.bytes": 9_000}
        self.sink = KafkaSink(config={**chosen, **config}, delivery="barrier", retry=QUICK)
        self.told: list[Event] = []
        self.parking = Nowhere()
        databases.create(dsn, self.source.table)

    def insert(self, *values: str, key: str = "k", topic: str = "", names: str = "{}") -> None:
        with psycopg.connect(self.dsn) as writer:
            writer.cursor().executemany(
                f"insert into {self.source.table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                " kafka_header_values) values (now(), %s, %s, %s, %s, '{}')",
                [(topic or self.topic, key, value, names) for value in values],
            )

    def rows(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as looker:
            return looker.execute(f"select id, leader_id from {self.source.table} order by id".encode()).fetchall()

    def came(self) -> dict[str, list[str]]:
        """The values of each key."""
        found: dict[str, list[str]] = {}
        for one in self.broker.records(self.topic):
            found.setdefault((one.key or b"").decode(), []).append((one.value or b"").decode())
        return found

    def deliver(self, epoch: int) -> BarrierDelivery:
        about = Circumstances("p", Lane("outbox"), "mark", epoch, self.told.extend)
        poison, lease = Poison(self.then, "wait", self.parking, about), self.source.row_lease.open(Stamp(epoch, 0))  # type: ignore[arg-type]
        given = Assignment(
            "p", Lane("outbox"), epoch, 0, "mark", None, self.told.append, poison, row_lease=lease, has_messages=True
        )
        return BarrierDelivery(self.sink, given)

    @contextmanager
    def carried(self, epoch: int = 1) -> Iterator[Carrier]:
        carrier = Carrier(self, epoch)
        carrier.start()
        yield carrier
        carrier.end()


class Carrier(Thread):
    """Reads and delivers until told to end, or until that raises."""

    def __init__(self, line: Line, epoch: int) -> None:
        super().__init__(name="carrier", daemon=True)
        self.delivery, self.error, self._leaving = line.deliver(epoch), list[PenstockError](), Flag()
        self._windows = follow(line.source, LANE, line.source.begin(LANE, "beginning"), Stamp(epoch, 0))

    def run(self) -> None:
        try:
            for window in self._windows:
                while not self.delivery.offer(window.changes, 0.05) and not self._leaving.is_set():
                    continue
                if self._leaving.is_set():
                    return
        except PenstockError as error:
            self.error.append(error)

    def end(self) -> None:
        self._leaving.set()
        self.join(PATIENCE)
        self.delivery.close()


@pytest.fixture
def line(postgres_of_module: str, broker: Broker) -> Line:
    return Line(postgres_of_module, broker)


def test_under_faults_everything_comes_and_nothing_of_a_key_comes_after_a_later_one(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "Producer", Faulty)
    with psycopg.connect(line.dsn) as writer:
        writer.execute(
            f"insert into {line.source.table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
            " kafka_header_values) select now(), %s, 'k' || n %% 10, n::text, '{testId}', '{T1}'"
            " from generate_series(0, 999) n".encode(),
            (line.topic,),
        )
    with line.carried() as carrier:
        until(lambda: line.rows() == [], what=lambda: str(carrier.error))
    assert carrier.error == []
    assert sum(one.messages for one in line.told if isinstance(one, MessagesReturned)) > 10, "no fault was injected"
    came = {key: list(map(int, values)) for key, values in line.came().items()}
    assert all(values == sorted(values) for values in came.values())
    assert {key: sorted(set(values)) for key, values in came.items()} == {f"k{n}": list(range(n, 1000, 10)) for n in range(10)}
    assert sum(map(len, came.values())) > 1000, "a lie about a delivery makes a repeat"
    assert {tuple(one.headers) for one in line.broker.records(line.topic)} == {(("testId", b"T1"),)}


def test_while_a_row_cannot_be_purged_exactly_one_of_its_key_is_under_way(line: Line) -> None:
    line.insert(*"0123456789")
    source, table = line.source, line.source.table
    windows = follow(source, LANE, source.begin(LANE, "beginning"), Stamp(1, 0))
    with psycopg.connect(line.dsn) as holder, closing(line.deliver(1)) as delivery:
        changes = next(windows).changes
        holder.execute(f"select 1 from {table} where id = 1 for update".encode())
        assert delivery.offer(changes, PATIENCE)
        until(lambda: line.came() == {"k": ["0"]})
        assert not delivery.drain(0.5)
        assert (line.came(), delivery.delivered()) == ({"k": ["0"]}, None)
        holder.rollback()
        assert delivery.drain(PATIENCE)
    assert line.came() == {"k": [*"0123456789"]}
    assert line.rows() == []


def test_a_failure_that_is_told_when_later_rows_of_its_key_are_marked_already_lets_none_of_them_slip_past(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race between the failure report and the next mark: what was marked before the reset is on its way, and goes back."""

    def lying_once(settings: dict[str, Any]) -> Faulty:
        return Faulty(settings, liar=iter([True]))

    monkeypatch.setattr(kafka, "Producer", lying_once)
    line.insert("0", "1", "2")
    windows = follow(line.source, LANE, line.source.begin(LANE, "beginning"), Stamp(1, 0))
    with closing(line.deliver(1)) as delivery:
        marked = next(windows).changes
        assert delivery.offer(marked.slice(0, 1), PATIENCE)
        until(lambda: any(isinstance(one, MessagesReturned) for one in line.told))
        assert delivery.offer(marked.slice(1), PATIENCE)
        while line.rows():
            assert delivery.offer(next(windows).changes, PATIENCE)
    assert line.came() == {"k": ["0", "0", "1", "2"]}


def test_a_deposed_leader_sends_no_second_record_of_a_key_and_is_told(line: Line) -> None:
    line.insert("0", "1")
    source = line.source
    start = source.begin(LANE, "beginning")
    old = next(follow(source, LANE, start, Stamp(1, 0)))
    delivery = line.deliver(1)
    until(lambda: time.monotonic() > delivery._confirmed_at + CONFIRM_SECONDS)  # as if it had been asleep
    new = next(follow(source, LANE, start, Stamp(2, 0)))
    assert new.changes.num_rows == 2
    assert delivery.offer(old.changes, PATIENCE)
    with pytest.raises(TermLost):
        until(lambda: delivery.drain(1))
    delivery.close()
    assert line.came() == {}, "it has heard nothing of the table for a second, and must ask before it sends"


def test_a_leader_that_is_deposed_between_sending_and_purging_repeats_one_record_at_most(line: Line) -> None:
    line.insert("0", "1", "2")
    source = line.source
    start = source.begin(LANE, "beginning")
    old = next(follow(source, LANE, start, Stamp(1, 0)))
    with closing(line.deliver(1)) as delivery:
        next(follow(source, LANE, start, Stamp(2, 0)))
        assert delivery.offer(old.changes, PATIENCE)
        with pytest.raises(TermLost):
            until(lambda: delivery.drain(1))
    with line.carried(epoch=3):
        until(lambda: line.rows() == [])
    assert line.came()["k"] in (["0", "0", "1", "2"], ["0", "1", "2"])


def test_poison_of_a_row_is_that_rows_and_holds_nobody_up(postgres_of_module: str, broker: Broker) -> None:
    line = Line(postgres_of_module, broker, then="drop")
    line.insert("before", key="a")
    line.insert("bad headers", key="a", names="{one}")
    line.insert("x" * 9_500, key="b")  # the library refuses it
    line.insert("x" * 5_000, key="c")  # the broker does
    line.insert("no topic", key="d", topic="not-there")
    for key in "abcd":
        line.insert("after", key=key)
    with line.carried() as carrier:
        until(lambda: line.rows() == [], what=lambda: str(carrier.error))
    assert carrier.error == []
    assert line.came() == {"a": ["before", "after"], "b": ["after"], "c": ["after"], "d": ["after"]}
    dropped = [one for one in line.told if type(one).__name__ == "ChangeDropped"]
    assert len(dropped) == 4
    assert any("unequal number of header keys (1) and values (0)" in one.message for one in dropped)


def test_a_letter_is_secured_before_its_row_is_purged(postgres_of_module: str, broker: Broker) -> None:
    line = Line(postgres_of_module, broker, then="dead-letter")
    line.parking = drawer = Drawer(lambda: [row for row, _ in line.rows()])
    line.insert("lost", topic="no topic")
    [(row, _)] = line.rows()
    with line.carried() as carrier:
        until(lambda: line.rows() == [], what=lambda: str(carrier.error))
    assert len(drawer.letters) == 1
    assert drawer.seen == [[row]]


def test_a_record_that_may_not_be_written_is_poison_of_its_row_and_the_others_go_on(
    postgres_of_module: str, broker: Broker
) -> None:
    broker.forbid(barred := broker.create())
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "app-secret"}
    way_in = {"bootstrap.servers": broker.secured, "security.protocol": "SASL_PLAINTEXT"}
    line = Line(postgres_of_module, broker, then="drop", **way_in, **credentials)
    line.insert("before", key="a")
    line.insert("may not", "nor this", key="a", topic=barred)
    line.insert("after", key="a")
    line.insert("other", key="b")
    with line.carried() as carrier:
        until(lambda: line.rows() == [], what=lambda: str(carrier.error))
        line.insert("later", key="b")
        until(lambda: line.rows() == [], what=lambda: str(carrier.error))
    assert carrier.error == []
    assert line.came() == {"a": ["before", "after"], "b": ["other", "later"]}
    assert broker.records(barred) == []
    dropped = [one for one in line.told if type(one).__name__ == "ChangeDropped"]
    assert [one.message.split(":")[:2] for one in dropped] == [
        [f"topic {barred} never accepts it", " TOPIC_AUTHORIZATION_FAILED"]
    ] * 2
    assert not any(isinstance(one, MessagesReturned) for one in line.told), "nothing goes back to be sent in vain"


def test_where_poison_halts_its_row_stays(line: Line) -> None:
    line.insert("bad", names="{one}")
    line.insert("behind")
    with line.carried() as carrier:
        until(lambda: carrier.error)
    assert isinstance(carrier.error[0], DeliveryExhausted)
    assert [row for row, _ in line.rows()] == [1, 2]
    assert line.came() == {}


def test_a_database_that_goes_away_is_waited_for_and_the_barrier_stays_up(
    breakable_postgres: PostgresServer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier, "CONFIRM_SECONDS", PATIENCE)  # so that the first need not ask, however long a server takes to go
    line = Line(breakable_postgres.create_database(), broker)
    line.insert(*"012")
    changes = next(follow(line.source, LANE, line.source.begin(LANE, "beginning"), Stamp(1, 0))).changes
    with closing(line.deliver(1)) as delivery:
        breakable_postgres.stop()
        try:
            assert delivery.offer(changes, PATIENCE)
            until(lambda: line.came() == {"k": ["0"]})
            until(lambda: len(line.told) > 1)
            assert line.came() == {"k": ["0"]}
        finally:
            breakable_postgres.start()
        assert delivery.drain(PATIENCE)
    assert line.came() == {"k": [*"012"]}
    assert line.rows() == []


def test_cursors_behind_what_was_delivered_bear_the_stamp_of_who_delivered_it(line: Line) -> None:
    lease = line.source.row_lease.open(Stamp(4, 2))
    assert lease.cursor(Cursor('{"position":9,"epoch":1,"attempt":1}')) == '{"position":9,"epoch":4,"attempt":2}'
