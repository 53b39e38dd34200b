"""Deliveries to a real broker: poison, outages, fencing, and what a successor finds."""

import threading
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from ending import Clock

from deadline import PATIENCE, until
from messages import to_change
from penstock import failpoint
from penstock.change import Lane, to_batch
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import DeliveryExhausted, SinkRefused, SinkUnavailable, TermLost
from penstock.message import Message
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import Poison
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.kafka import client, group_watermark, transaction, transactional
from penstock.sinks.kafka.checks import brokers
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.handing import flushed
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.kafka.transaction import taken

BOTH = ["exactly-once", "at-least-once"]
QUICK = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=50))
LIMIT = 20_000
KEYS = 7


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Answers that must come are waited for as long as any event."""
    for module, limit in ((transactional, "STUCK_SECONDS"), (transactional, "STALL_SECONDS"), (group_watermark, "PATIENCE")):
        monkeypatch.setattr(module, limit, 2 * PATIENCE)


SPOILT = {
    "no record": lambda line, at, **other: line.message(at, **other).replace(error="unequal numbers of headers"),
    "too large for the library": lambda line, at, **other: line.message(at, b"x" * 20 * LIMIT, **other),
    "too large for the broker": lambda line, at, **other: line.message(at, b"x" * 2 * LIMIT, **other),
}


class Nowhere:
    """Letters that nobody keeps: for policies that drop."""

    def holds(self, rows=None):
        return ()


class Drawer(Nowhere):
    """Keeps letters, and notes what was to be seen when it was asked to secure them."""

    def __init__(self, look):
        self.letters, self.seen, self._look = [], [], look

    def park(self, letters):
        self.letters += letters

    def secure(self):
        self.seen.append(self._look())


class Line:
    """Opens deliveries of one pipeline, offers runs with a mark behind each, and remembers what was dropped."""

    def __init__(self, broker, delivery="exactly-once", then="drop", config=None, **topic):
        self.broker, self.topic, self.then, self.dropped = broker, broker.create(**topic), then, []
        servers = {"bootstrap.servers": broker.servers, "topic.metadata.propagation.max.ms": 500}
        self.sink = KafkaSink(config={**servers, **(config or {})}, delivery=delivery, retry=QUICK)

    def open(self, parking=None, keys="wait", **about):
        def emit(event):
            if hasattr(event, "position"):
                self.drop(event.position)

        poison = Poison(
            self.then,
            keys,
            parking or Nowhere(),
            Circumstances(self.topic, Lane("main"), "cafe", 1, lambda events: list(map(emit, events))),
        )
        return closing(
            self.sink.open(Assignment(self.topic, Lane("main"), 1, 0, "cafe", None, emit, poison, has_messages=True, **about))
        )

    def drop(self, position):
        self.dropped.append(position)

    def message(self, position, value=None, **differently):
        facts = {
            "topic": self.topic,
            "key": f"k{position % KEYS}".encode(),
            "value": value or str(position).zfill(900).encode(),
            "headers": (),
        }
        return to_change(Message(**facts | differently), position)

    def run(self, *positions):
        return to_batch([self.message(position) for position in positions])

    def kept(self):
        mark = self.group_watermark.read()
        return mark and mark.position

    @property
    def group_watermark(self):
        return GroupWatermark(self.sink, self.topic, Lane("main"))

    def came(self):
        """What a read_committed consumer has, partition by partition."""
        return [int(record.value) for record in self.broker.records(self.topic)]


def put(delivery, run, wait=PATIENCE):
    assert delivery.offer(run, wait)
    if isinstance(delivery, transactional.TransactionalDelivery):
        position = run.column(0)[run.num_rows - 1].as_py()
        delivery.mark(Watermark(Cursor(f'"{position}"'), position, position))


def deliver(delivery, run):
    put(delivery, run)
    assert delivery.drain(PATIENCE)


def once(line):
    with line.open() as opened:
        deliver(opened, line.run(1))


def until_failed(delivery, line):
    """Go on delivering until that raises; it must not succeed."""
    put(delivery, line.run(6))
    assert not delivery.drain(PATIENCE)


def assert_once_and_in_order(line, positions):
    came = line.came()
    assert sorted(came) == sorted(positions)
    assert sorted(came, key=lambda p: p % KEYS) == sorted(came, key=lambda p: (p % KEYS, p))


# ── poison ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delivery", BOTH)
def test_what_is_never_accepted_is_taken_out_and_everything_else_comes_once_and_in_order(broker, delivery):
    line = Line(broker, delivery, config={"message.max.bytes": 10 * LIMIT})  # batches will be too large, too
    line.topic = broker.create(partitions=2, config={"max.message.bytes": str(LIMIT)})
    changes = [line.message(position) for position in range(1, 400)]
    changes[9] = SPOILT["too large for the broker"](line, 10)  # it refuses the batch it is in
    changes[19] = SPOILT["too large for the library"](line, 20)
    changes[29] = SPOILT["no record"](line, 30)
    changes[39] = line.message(40, topic="not-there")
    with line.open() as opened:
        deliver(opened, to_batch(changes))
        deliver(opened, line.run(*range(400, 420)))
        assert opened.delivered().position == 419
    assert sorted(line.dropped) == [10, 20, 30, 40]
    assert_once_and_in_order(line, set(range(1, 420)) - {10, 20, 30, 40})


@pytest.mark.parametrize(("delivery", "fault", "at"), [*product(BOTH, SPOILT, [1, 2, 30])])
def test_what_halts_the_pipeline_is_passed_by_nothing_of_its_key(broker, delivery, fault, at):
    line = Line(broker, delivery, then="halt", config={"message.max.bytes": 10 * LIMIT, "batch.num.messages": 2})
    line.topic = broker.create(partitions=1, config={"max.message.bytes": str(LIMIT)})
    with line.open() as opened:
        changes = [line.message(position, key=b"k") for position in range(1, 3000)]
        changes[at - 1] = SPOILT[fault](line, at, key=b"k")
        with pytest.raises(DeliveryExhausted):
            deliver(opened, to_batch(changes))
        if delivery == "at-least-once":
            until(lambda: opened._poll(0.1) or not opened._under_way)  # what the library was handed may come
    assert set(line.came()) <= set(range(1, at))


class Watching(Line):
    """Of one key; looks at what has come whenever a change is taken out."""

    def message(self, position, value=None):
        return super().message(position, value, key=b"k")

    def drop(self, position):
        self.dropped.append((position, [other for other in self.came() if other > position]))


@pytest.mark.parametrize("together", [1, 2, 10_000])
def test_a_change_that_is_taken_out_is_passed_by_nothing_of_its_key(broker, together):
    line = Watching(broker, "at-least-once", config={"message.max.bytes": 10 * LIMIT, "batch.num.messages": together})
    line.topic = broker.create(partitions=1, config={"max.message.bytes": str(LIMIT)})
    changes, spoilt = [line.message(position) for position in range(1, 300)], [2, 3, 5, 8, 15, 100]
    for position in spoilt:
        changes[position - 1] = SPOILT["too large for the broker"](line, position)
    with line.open() as opened:
        deliver(opened, to_batch(changes))
    assert line.dropped == [(position, []) for position in spoilt]
    assert line.came() == sorted(set(range(1, 300)) - {*spoilt})


def test_what_waits_its_turn_goes_though_nobody_drains(broker, monkeypatch):
    monkeypatch.setattr("penstock.sinks.kafka.pipelined.PRESS_SECONDS", PATIENCE)  # a slow host gets as far in one look
    line = Line(broker, "at-least-once", config={"message.max.bytes": 10 * LIMIT})
    line.topic = broker.create(partitions=1, config={"max.message.bytes": str(LIMIT)})
    changes = [line.message(position, b"x" * 300) for position in range(1, 600)]
    changes[299] = SPOILT["too large for the broker"](line, 300)
    looks = 0

    def is_delivered():
        nonlocal looks
        waited, last = len(opened._waiting), opened.delivered()
        looks += len(opened._waiting) < waited
        return last and last.position == 599

    with line.open() as opened:
        put(opened, to_batch(changes))
        until(is_delivered)
    assert looks < 150, "at one or two records each they would not be enough"
    assert line.dropped == [300]


def test_what_ends_a_producer_while_it_calls_back_comes_out_as_what_it_is(broker):
    topic, told = broker.create(partitions=1, config={"max.message.bytes": str(LIMIT)}), []
    settings = {"bootstrap.servers": broker.servers, "message.max.bytes": 10 * LIMIT}
    producer = Producer(client.producing(client.PIPELINED, settings, "p", told.append))
    for _ in range(100):
        producer.produce(topic, b"x" * 900, b"k", on_delivery=partial(lambda *_: told.append(None), 1))
    with pytest.raises(KafkaException, match="GAPLESS_GUARANTEE"):
        flushed(producer, PATIENCE)


def test_letters_are_secured_before_the_transaction_that_passes_them_is_committed(broker):
    line = Line(broker, then="dead-letter")
    drawer = Drawer(line.came)
    with line.open(drawer) as opened:
        deliver(opened, to_batch([line.message(1), line.message(2, topic="no topic"), line.message(3)]))
        deliver(opened, line.run(4))
    assert [letter.change.position for letter in drawer.letters] == [2]
    assert drawer.seen == [[]]
    assert_once_and_in_order(line, [1, 3, 4])


@pytest.mark.parametrize("delivery", BOTH)
def test_a_record_that_is_refused_in_its_turn_has_not_overtaken_the_letter_of_its_key(broker, delivery, tmp_path):
    line, state = (
        Line(broker, delivery, "dead-letter", {"message.max.bytes": 10 * LIMIT}),
        SqliteCoordinator(f"{tmp_path}/state.db"),
    )
    line.topic = broker.create(partitions=1, config={"max.message.bytes": str(LIMIT)})

    def overtaken():
        return [(letter.change.position, letter.is_overtaken) for letter in state.letters("p")]

    with closing(state.candidate("p", "me")) as candidate:
        term = candidate.campaign()
        state.place(term, {Lane("main"): Watermark(Cursor("c"), 0)})
        with state.claim(term, Lane("main"), 0) as claim, line.open(claim, keys="go-on") as opened:
            for position in (1, 2):
                deliver(opened, to_batch([line.message(position, b"x" * 2 * LIMIT, key=b"k")]))
            assert overtaken() == [(1, False), (2, False)]
            deliver(opened, to_batch([line.message(3, key=b"k")]))
            assert overtaken() == [(1, True), (2, True)]


@pytest.mark.parametrize("delivery", BOTH)
def test_a_topic_that_may_not_be_written_to_halts_the_pipeline_and_nothing_behind_it_counts(broker, delivery):
    broker.forbid(barred := broker.create())
    credentials = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "app"}
    config = {**credentials, "sasl.password": "app-secret", "bootstrap.servers": broker.secured}
    line = Line(broker, delivery, then="halt", config=config)
    with line.open() as opened:
        deliver(opened, line.run(1, 2, 3))
        put(opened, to_batch([line.message(4, topic=barred)]))
        with pytest.raises(DeliveryExhausted, match=rf"topic {barred} never accepts it.*\| grant this pipeline's user"):
            opened.drain(PATIENCE)
        assert opened.delivered().position == 3
    assert sorted(line.came()) == [1, 2, 3]


class FailingMidway:
    """A producer whose transaction fails for a record while offsets are sent: that call reports the state, the next the reason."""

    def __init__(self, producer):
        self._producer, self._was_asked = producer, False

    def __getattr__(self, name):
        return getattr(self._producer, name)

    def send_offsets_to_transaction(self, *values):
        if self._was_asked:
            return self._producer.send_offsets_to_transaction(*values)
        self._was_asked = True
        with pytest.raises(KafkaException):
            until(lambda: self._producer.send_offsets_to_transaction(*values))
        raise KafkaException(KafkaError(KafkaError._STATE, "Erroneous state", False, False, True))


def test_a_transaction_that_fails_while_its_watermark_is_sent_is_judged_by_the_reason_and_not_by_its_state(broker, monkeypatch):
    broker.forbid(barred := broker.create())
    credentials = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "app"}
    config = {**credentials, "sasl.password": "app-secret", "bootstrap.servers": broker.secured}
    line = Line(broker, then="halt", config=config)
    monkeypatch.setattr(transaction, "taken", lambda *values: FailingMidway(taken(*values)))
    with line.open() as opened:
        put(opened, to_batch([line.message(1, topic=barred)]))
        with pytest.raises(DeliveryExhausted, match=f"topic {barred} never accepts it"):
            assert opened.drain(PATIENCE)


# ── who may come in ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delivery", BOTH)
def test_a_wrong_password_is_a_clear_error_and_is_not_shown(broker, delivery):
    credentials = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": "wr0ng",
    }
    line = Line(broker, delivery, config={**credentials, "bootstrap.servers": broker.secured})
    with pytest.raises(SinkRefused, match=r"Authentication failed.*\| see sasl") as raised:
        once(line)
    assert "wr0ng" not in str(raised.value)
    if delivery == "at-least-once":
        [finding] = brokers(line.sink)
        assert "wr0ng" not in str(finding)
        assert "Authentication" in str(finding)


def test_brokers_that_are_away_at_the_start_are_waited_for_by_starting_again(broker, monkeypatch):
    monkeypatch.setattr(group_watermark, "PATIENCE", 1.0)
    sink = KafkaSink(config={"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(SinkUnavailable, match="check that the brokers"):
        sink.watermark("nobody", Lane("main"))


# ── outages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delivery", BOTH)
def test_a_broker_that_is_killed_and_comes_back_costs_neither_order_nor_a_record(breakable_broker, delivery, monkeypatch):
    line = Line(breakable_broker, delivery, partitions=3)
    with line.open() as opened:
        deliver(opened, line.run(*range(1, 50)))
        for position in range(50, 150):
            put(opened, line.run(position))
        breakable_broker.kill()
        try:
            for position in range(150, 250):
                put(opened, line.run(position))
            assert not opened.drain(0.2)
        finally:
            breakable_broker.start()
        with suppress(SinkUnavailable), monkeypatch.context() as patched:
            patched.setattr(transactional, "STUCK_SECONDS", 5.0)  # the client may wait without an end: the lane is taken up again
            patched.setattr(transactional, "STALL_SECONDS", 30.0)
            until(lambda: opened.drain(1))
    if delivery == "exactly-once":
        with line.open() as opened:
            deliver(opened, line.run(*range(line.kept() + 1, 251)))
    assert_once_and_in_order(line, range(1, 251 if delivery == "exactly-once" else 250))


def test_a_client_that_asks_in_vain_is_given_up_and_another_goes_on(breakable_broker, monkeypatch):
    line = Line(breakable_broker, config={"bootstrap.servers": breakable_broker.routed})
    with breakable_broker.route() as route:
        opened = line.sink.open(Assignment(line.topic, Lane("main"), 1, 0, "cafe", None, print, has_messages=True))
        deliver(opened, line.run(1, 2, 3))
        route.cut()
        put(opened, line.run(4, 5))
        with monkeypatch.context() as patched:
            patched.setattr(transactional, "STALL_SECONDS", 2.0)
            with pytest.raises(SinkUnavailable, match="waits without limit"):
                until(lambda: opened.drain(0.1))
            opened.close()
        route.heal()
        with line.open() as successor:
            deliver(successor, line.run(*range(line.kept() + 1, 8)))
    assert_once_and_in_order(line, range(1, 8))


# ── exactly once ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_what_has_a_mark_behind_it_is_committed_and_the_rest_is_aborted(broker):
    line = Line(broker)
    with line.open() as opened:
        deliver(opened, line.run(1, 2, 3))
        assert opened.offer(line.run(4, 5), PATIENCE)
        assert opened.drain(PATIENCE), "what has no mark behind it is not waited for"
    assert line.kept() == 3
    assert sorted(line.came()) == [1, 2, 3]


def test_marks_with_nothing_before_them_make_no_transaction(broker):
    line = Line(broker)
    with line.open() as opened:
        opened.mark(Watermark(Cursor('"9"'), 9))
        assert opened.drain(PATIENCE)
        assert opened.delivered() is None
    assert line.kept() is None


def test_whoever_takes_the_lane_over_fences_the_one_before_and_finds_all_of_its_commits(broker):
    line = Line(broker)
    with line.open() as deposed:
        deliver(deposed, line.run(1, 2, 3))
        assert deposed.offer(line.run(4, 5), PATIENCE)
        with line.open() as successor:
            assert line.kept() == 3
            with pytest.raises(TermLost, match="another producer has taken this lane over"):
                until_failed(deposed, line)
            deliver(successor, line.run(4, 5, 6, 7))
        assert deposed.delivered().position == 3
    assert_once_and_in_order(line, range(1, 8))


def test_who_died_right_before_a_commit_is_not_waited_for(broker):
    """Its watermark is in a transaction that nobody ends: to ask for it would take until the brokers lose patience."""
    line = Line(broker)
    with line.open() as opened:
        deliver(opened, line.run(1, 2, 3))
    dead = Producer(line.group_watermark.producer_settings())
    dead.init_transactions(PATIENCE)
    dead.begin_transaction()
    dead.produce(line.topic, b"4", b"k4")
    dead.flush()
    dead.send_offsets_to_transaction(
        line.group_watermark.offsets(Watermark(Cursor('"4"'), 4, 4)), line.group_watermark.member(), PATIENCE
    )
    assert line.sink.watermark(line.topic, Lane("main")).position == 3
    with line.open() as successor:
        assert successor.kept.position == 3
        deliver(successor, line.run(4, 5))
    assert_once_and_in_order(line, range(1, 6))


def test_a_pause_between_sending_and_committing_leaves_everything_invisible(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(failpoint, "_folder", str(tmp_path))
    line = Line(broker)
    with line.open() as opened:
        (order := tmp_path / "sink.sending").write_text("pause")
        put(opened, line.run(1, 2))
        until((tmp_path / "sink.sending.reached").exists)
        assert line.came() == []
        assert opened.delivered() is None
        order.unlink()
        assert opened.drain(PATIENCE)
    assert sorted(line.came()) == [1, 2]


def test_what_came_during_a_long_commit_goes_together(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(failpoint, "_folder", str(tmp_path))
    clock = Clock()
    monkeypatch.setattr(transactional, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(transactional, "LATE_SECONDS", PATIENCE)
    line = Line(broker, partitions=1)
    with line.open() as opened:
        (tmp_path / "sink.sending").write_text("pause")
        put(opened, line.run(1))
        until((tmp_path / "sink.sending.reached").exists)
        for position in range(2, 52):
            put(opened, line.run(position))
        clock.step(timedelta(seconds=PATIENCE))  # the length of the fault
        (tmp_path / "sink.sending").unlink()
        assert opened.drain(PATIENCE)
    assert line.came() == list(range(1, 52))
    last = broker.records(line.topic)[-1]
    assert last.offset - 50 == 1, "each transaction before this one has left a record at its end"


def test_a_cursor_longer_than_kafka_takes_at_once_is_kept_whole(broker):
    line = Line(broker)
    long = Watermark(Cursor('"' + "1:2," * 4000 + '"'), 2, 2)
    with line.open() as opened:
        assert opened.offer(line.run(1, 2), PATIENCE)
        opened.mark(long)
        assert opened.drain(PATIENCE)
    assert line.group_watermark.read() == long


def test_a_lane_that_is_released_keeps_nothing_and_its_deliverer_is_fenced(broker):
    line = Line(broker)
    with line.open() as opened:
        deliver(opened, line.run(1))
        line.sink.release(line.topic, [Lane("main"), Lane("never-used")])
        assert line.kept() is None
        with pytest.raises(TermLost):
            until_failed(opened, line)
    assert line.came() == [1]


def test_what_a_person_sends_again_needs_no_mark(broker):
    line = Line(broker)
    with line.open(is_redrive=True) as opened:
        assert opened.offer(line.run(1), PATIENCE)
        assert opened.drain(PATIENCE)
    assert line.came() == [1]


def test_closing_while_the_brokers_hang_waits_no_longer_than_for_a_call_that_is_stuck(breakable_broker, monkeypatch):
    line = Line(breakable_broker)
    opened = line.sink.open(Assignment(line.topic, Lane("main"), 1, 0, "cafe", None, print, has_messages=True))
    deliver(opened, line.run(1))
    monkeypatch.setattr(transactional, "STUCK_SECONDS", 2.0)
    breakable_broker.pause()
    try:
        put(opened, line.run(2))
        closer = threading.Thread(target=opened.close, daemon=True)
        closer.start()
        closer.join(PATIENCE)
        assert not closer.is_alive()
    finally:
        breakable_broker.resume()
    assert opened.delivered().position == 1


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_doctor_finds_the_brokers_and_a_topic_that_is_missing(broker):
    sink = KafkaSink(config={"bootstrap.servers": broker.servers}, topic="nowhere")
    reached, missing = brokers(sink)
    assert "1 broker with" in str(reached)
    assert "topic nowhere does not exist" in str(missing)
