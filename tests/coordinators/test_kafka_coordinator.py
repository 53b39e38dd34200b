"""The coordinator over Kafka, where it is unlike the others: its topics, its election, and what a network does to both."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import penstock
from deadline import PATIENCE, until
from penstock.change import Change, Lane, Op
from penstock.config import parse
from penstock.coordinator import PipelineState, Tally
from penstock.coordinators.kafka import log, topics
from penstock.coordinators.kafka.address import Address
from penstock.coordinators.kafka.client import Ear
from penstock.coordinators.kafka.coordinator import KafkaCoordinator
from penstock.coordinators.kafka.log import StateLog, shared
from penstock.cursor import Cursor, Watermark
from penstock.errors import ConfigInvalid, StateInvalid, StateUnavailable, TermFenced, TermLost
from penstock.letter import DeadLetter
from penstock.running.leadership import Leadership
from servers.broker import Broker
from servers.proxy import Proxy

LANE = Lane("main")
HURRY = 2.0
"""Seconds that a test waits in vain for an answer, where an answer cannot come."""


def mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position, position)


def patient(broker: Broker, **given: Any) -> KafkaCoordinator:
    """State in a topic of its own, whose answers are waited for as long as any event."""
    url = f"kafka://{broker.servers}/state-{uuid.uuid4().hex[:8]}?session-timeout=1200s"
    return KafkaCoordinator(url, **{"silence": PATIENCE, "deadline": PATIENCE, **given})


@pytest.fixture
def state(broker: Broker) -> KafkaCoordinator:
    return patient(broker)


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.servers})


@pytest.fixture
def leader(state: KafkaCoordinator) -> Iterator[Any]:
    with closing(state.candidate("p", "leader")) as made:
        yield made


def test_asking_makes_no_topics(state: KafkaCoordinator, admin: AdminClient) -> None:
    assert state.pipeline_state("p") == PipelineState()
    assert state.watermark("p", LANE) is None
    assert state.letters("p") == []
    state.examine()
    assert state.where.topic not in admin.list_topics(timeout=PATIENCE).topics


def test_a_state_of_an_earlier_version_is_read_and_one_of_a_later_version_is_refused(
    state: KafkaCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(log, "VERSION", log.VERSION - 1)
        with closing(state.candidate("p", "leader")) as leader:
            state.place(until(leader.campaign), {LANE: mark(7)})
    assert StateLog(state.where).look(lambda machine: machine.of("p").lanes[LANE].position) == 7
    monkeypatch.setattr(log, "VERSION", log.VERSION - 2)
    with pytest.raises(StateInvalid, match="this program reads versions up to"):
        StateLog(state.where).look(lambda machine: machine)


def test_after_a_checkpoint_the_old_records_are_gone_and_a_new_reader_knows_the_same(
    state: KafkaCoordinator, leader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHECKPOINT", 20)
    monkeypatch.setattr(log, "PART", 700)
    term = leader.campaign()
    state.place(term, {LANE: mark(0)})
    long = Change(5, Op.INSERT, "t", '{"id":1}', None, f'"{"x" * 5000}"')
    with state.claim(term, LANE, 0) as claim:
        claim.park([DeadLetter("cafe", LANE, long, "sink", "sink.exhausted", "no", 1)])
        for position in range(30):
            claim.advance(mark(position), Tally(1))
        leader.renew()
        claim.advance(mark(30), Tally(1))
        other = StateLog(state.where)
        assert other.look(lambda machine: machine.written()) == shared(state.where).look(lambda machine: machine.written())
        low, _ = other._ends()
        assert low > 20
        claim.advance(mark(31), Tally(1))
        assert other.look(lambda machine: machine.of("p").lanes[LANE].position) == 31
    assert state.letters("p")[0].change == long
    assert state.pipeline_state("p").delivered == 32


def test_a_state_that_could_not_be_read_anew_is_read_anew_the_next_time(
    state: KafkaCoordinator, leader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHECKPOINT", 5)
    term = leader.campaign()
    state.place(term, {LANE: mark(0)})
    behind = StateLog(state.where)
    assert behind.look(lambda machine: machine.of("p").lanes[LANE].position) == 0
    with state.claim(term, LANE, 0) as claim:
        for position in range(1, 20):
            claim.advance(mark(position), Tally(1))
        leader.renew()
    assert behind._next < behind._ends()[0]

    def broken(*_: object) -> Any:
        raise StateUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(behind, "_records", broken)
        with pytest.raises(StateUnavailable):
            behind.look(lambda machine: machine)
    assert behind.look(lambda machine: machine.of("p").lanes[LANE].position) == 19


def test_a_refusal_that_has_passed_is_not_remembered(state: KafkaCoordinator, leader: Any) -> None:
    leader.campaign()
    known = StateLog(state.where)
    known._ear(KafkaError(KafkaError._AUTHENTICATION, "the token was too old"))
    known.look(lambda machine: machine)
    assert isinstance(known._ear.told(KafkaError(KafkaError._TIMED_OUT), "reading"), StateUnavailable)


def test_who_may_not_delete_records_leads_on_and_hears_a_warning(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "CHECKPOINT", 2)
    topic = f"state-{uuid.uuid4().hex[:8]}"
    user = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username=app&sasl.password=app-secret"
    for deed in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE):
        pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        binding = AclBinding(*pattern, "User:app", "*", deed, AclPermissionType.ALLOW)
        admin.create_acls([binding], request_timeout=PATIENCE)[binding].result(PATIENCE)
    state = KafkaCoordinator(f"kafka://{broker.secured}/{topic}?session-timeout=1200s&{user}")
    with closing(state.candidate("p", "leader")) as leader:
        state.place(leader.campaign(), {LANE: mark(3)})
        leader.renew()
        leader.renew()
    assert state.watermark("p", LANE) == mark(3)
    assert [one for one in caplog.messages if "only grows" in one]


def test_a_topic_that_would_forget_is_refused_with_the_command_that_alters_it(state: KafkaCoordinator, broker: Broker) -> None:
    broker.create(state.where.topic, partitions=1)
    with closing(state.candidate("p", "leader")) as leader, pytest.raises(StateInvalid, match="deletes records") as caught:
        leader.campaign()
    assert "--add-config cleanup.policy=delete,retention.ms=-1" in caught.value.remedy
    with pytest.raises(StateInvalid, match="deletes records"):
        state.examine()


def test_records_that_somebody_else_has_removed_or_written_are_noticed(
    state: KafkaCoordinator, leader: Any, broker: Broker, admin: AdminClient
) -> None:
    state.place(leader.campaign(), {LANE: mark(3)})
    [removed] = admin.delete_records([TopicPartition(state.where.topic, 0, 2)], request_timeout=PATIENCE).values()
    removed.result(PATIENCE)
    with pytest.raises(StateInvalid, match="first records were removed"):
        StateLog(state.where).look(lambda machine: machine)
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(state.where.topic, b'{"do":"open"}', b"other", 0)
    producer.produce(state.where.topic, b"hello", b"other", 0)
    producer.flush(PATIENCE)
    with pytest.raises(StateInvalid, match="is not from Penstock"):
        state.watermark("p", LANE)


RECORD = {"by": "another", "n": 1, "pipeline": "p", "epoch": 0, "error": {}}


@pytest.mark.parametrize(
    ("record", "key", "reason"),
    [
        (json.dumps({"do": "later", **RECORD}), None, "of a later version"),
        (json.dumps({"do": "halt", **RECORD}), "other", "another program"),
        (b"\xff", None, "is not from Penstock"),
    ],
    ids=["later", "foreign", "binary"],
)
def test_a_record_that_cannot_be_applied_is_refused_at_every_read_and_not_only_at_the_first(
    state: KafkaCoordinator, leader: Any, broker: Broker, record: str | bytes, key: str | None, reason: str
) -> None:
    state.place(leader.campaign(), {LANE: mark(3)})
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(state.where.topic, record, key or state.identity(), 0)
    producer.flush(PATIENCE)
    for _ in range(3):
        with pytest.raises(StateInvalid, match=reason):
            state.watermark("p", LANE)
    with pytest.raises(StateInvalid, match=reason):
        leader.renew()


@pytest.mark.parametrize("terms", [0, 10])
def test_a_topic_that_was_made_anew_is_noticed_also_after_a_record_that_could_not_be_applied(
    state: KafkaCoordinator, leader: Any, broker: Broker, admin: AdminClient, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its end, and where that lies after the former end, by its first record."""
    state.place(leader.campaign(), {LANE: mark(3)})
    mine, topic = state._log, state.where.topic
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, json.dumps({"do": "halt", **RECORD}), "other", 0)
    producer.flush(PATIENCE)
    with pytest.raises(StateInvalid, match="another program"):
        state.watermark("p", LANE)
    admin.delete_topics([topic])[topic].result()
    assert until(lambda: topic not in admin.list_topics(timeout=PATIENCE).topics)
    another = StateLog(state.where)
    until(lambda: _tried(another.prepare))
    for number in range(terms):
        another.write("take", pipeline=f"q{number}", holder="h", seat="s", over=0)
    monkeypatch.setattr(log, "GONE_SECONDS", 0.0)
    end = another._ends()
    for act in (lambda: mine.look(id), lambda: mine.write("take", pipeline="p", holder="h", seat="s", over=0)) * 2:
        with pytest.raises(StateInvalid, match="it was made anew"):
            until(lambda act=act: _tried(act))
    assert another._ends() == end


def test_a_state_topic_that_is_removed_under_a_leader_is_noticed(state: KafkaCoordinator, leader: Any, admin: AdminClient) -> None:
    term = leader.campaign()
    state.place(term, {LANE: mark(3)})
    admin.delete_topics([state.where.topic])[state.where.topic].result()
    assert until(lambda: state.where.topic not in admin.list_topics(timeout=PATIENCE).topics)
    with pytest.raises(StateInvalid, match="it is gone"):
        until(lambda: _tried(lambda: state.place(term, {LANE: mark(4)})))


def test_only_heartbeats_of_ones_own_count(state: KafkaCoordinator, leader: Any, broker: Broker) -> None:
    leader.campaign()
    member, foreign = leader._member, Producer({"bootstrap.servers": broker.servers})
    member._beat = lambda: foreign.produce(state.where.leader_topic, b"1%another", b"another", 0, headers={"sent-at": "1e18"})
    taken, take_in = list[Any](), member._take_in
    member._take_in = lambda message: (taken.append(message and message.key()), take_in(message))
    assert until(lambda: member.pulse(0.05) or b"another" in taken)
    assert not member.pulse(0.05)


def test_a_leader_that_loses_its_partition_waits_for_no_heartbeat(state: KafkaCoordinator, leader: Any) -> None:
    leader.campaign()
    member = leader._member
    member._beat = lambda: member._taken(None, [TopicPartition(state.where.leader_topic, 0)])
    assert not member.pulse(86_400.0)


def test_a_leader_that_is_cut_off_stands_down_before_another_leads_and_changes_nothing_afterwards(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "patience", PATIENCE)
    host, _, port = broker.servers.partition(":")
    session, skipped = 20.0, [0.0]
    options = f"state-{uuid.uuid4().hex[:8]}?session-timeout={session}s"
    with Cut(int(port)) as proxy:
        near = KafkaCoordinator(f"kafka://{broker.servers}/{options}", silence=PATIENCE)
        far = KafkaCoordinator(f"kafka://{host}:{proxy.port}/{options}", silence=PATIENCE, clock=_Clock(skipped, pace=0.001))
        with closing(near.candidate("p", "rival")) as rival, closing(far.candidate("p", "leader")) as leader:
            old = leader.campaign()
            far.place(old, {LANE: mark(0)})
            with far.claim(old, LANE, 0) as held:
                held.advance(mark(5), Tally(1))
                assert rival.campaign() is None
                leader.renew()
                cut_at = time.monotonic()
                proxy.cut()
                with hurried(monkeypatch), pytest.raises(StateUnavailable):
                    leader.renew()
                skipped[0] += session / 2
                with pytest.raises(TermFenced):
                    leader.renew()
                assert rival.campaign() is None or time.monotonic() - cut_at > session - 1
                new = until(rival.campaign)
                near.place(new, {LANE: mark(6)})
                with hurried(monkeypatch), pytest.raises(StateUnavailable):
                    held.advance(mark(7), Tally(1))
                proxy.heal()
                with pytest.raises(TermLost):
                    until(lambda: _tried(lambda: held.advance(mark(9), Tally(1))))
            assert near.watermark("p", LANE) == mark(6)
            assert leader.campaign() is None


def test_a_standby_that_goes_is_not_waited_for_when_the_leader_goes_too(broker: Broker, admin: AdminClient) -> None:
    state = KafkaCoordinator(patient(broker).url)  # a session is longer than anything is waited for here
    group, standing = state.where.group("p"), [Leadership(state, "p", f"member {number}") for number in range(3)]
    for one in standing:
        one.enter()
        one.start()
    leader = until(lambda: next(iter(leading(standing)), None))
    until(lambda: len(admin.describe_consumer_groups([group])[group].result().members) == 3)
    standby, heir = [one for one in standing if one is not leader]
    standby.leave()
    leader.leave()
    assert until(lambda: leading([heir]))
    heir.leave()


def test_no_request_is_made_that_aborts_the_process_when_its_connection_ends() -> None:
    """Those to a group's coordinator (librdkafka's pull request 5397); `penstock forget` has no other way to delete a group."""
    source = Path(penstock.__file__).parent
    calls = re.compile(r"\.(describe_consumer_groups|\w+_consumer_group_offsets|delete_consumer_groups)\(")
    found = {(str(file.relative_to(source)), call) for file in source.rglob("*.py") for call in calls.findall(file.read_text())}
    assert found == {("sinks/kafka/group_watermark.py", "delete_consumer_groups")}


def leading(some: list[Leadership]) -> list[Leadership]:
    return [one for one in some if one.is_held() and not one.is_lost()]


def test_an_owner_that_was_fenced_and_still_owns_partition_zero_resumes_with_a_new_term(broker: Broker) -> None:
    clock = [0.0]
    state = patient(broker, clock=_Clock(clock))
    with closing(state.candidate("p", "leader")) as leader:
        old = leader.campaign()
        leader.renew()
        clock[0] += PATIENCE + 0.1
        with pytest.raises(TermFenced, match="for 900 s"):
            leader.renew()
        assert leader.campaign().epoch > old.epoch


def test_a_pipeline_file_names_the_topic_and_settings_that_do_not_exist_are_told(broker: Broker) -> None:
    values = {"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": {"type": "discard"}}
    made = parse({**values, "state": f"kafka://{broker.servers}/state"}).state
    assert made.address == f"kafka://{broker.servers}/state"
    with pytest.raises(ConfigInvalid, match=r"no.such"):
        parse({**values, "state": f"kafka://{broker.servers}/state?no.such=s3cret"})


def test_a_leader_and_a_claim_outlast_a_restart_of_the_brokers_and_nothing_is_counted_twice(
    breakable_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = patient(breakable_broker)
    with closing(state.candidate("p", "leader")) as leader:
        term = leader.campaign()
        state.place(term, {LANE: mark(0)})
        with state.claim(term, LANE, 0) as claim:
            claim.advance(mark(1), Tally(1))
            breakable_broker.kill()
            with hurried(monkeypatch), pytest.raises(StateUnavailable):
                claim.advance(mark(2), Tally(1))
            breakable_broker.start()
            until(lambda: _tried(lambda: claim.advance(mark(3), Tally(2))))
            until(lambda: _tried(leader.renew))
        seen = list[PipelineState]()
        until(lambda: _tried(lambda: seen.append(state.pipeline_state("p"))))  # the group is the last to be there again
        [standing] = seen
        assert (standing.delivered, standing.epoch, standing.watermarks[LANE]) == (3, term.epoch, mark(3))


def test_brokers_that_are_away_are_no_topic_that_is_gone(breakable_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    state = patient(breakable_broker)
    with closing(state.candidate("p", "leader")) as leader:
        state.place(leader.campaign(), {LANE: mark(3)})
        monkeypatch.setattr(log, "GONE_SECONDS", 0.0)
        with hurried(monkeypatch):
            until(lambda: _tried(lambda: state.pipeline_state("p")))  # those in a hurry share another log
            breakable_broker.kill()
            for _ in range(3):
                with pytest.raises(StateUnavailable):
                    state.pipeline_state("p")
        breakable_broker.start()
        seen = list[PipelineState]()
        until(lambda: _tried(lambda: seen.append(state.pipeline_state("p"))))
        assert seen[0].watermarks == {LANE: mark(3)}


class Loading:
    """An admin client of a broker that answers so many requests with an error."""

    def __init__(self, error: int, times: int) -> None:
        self.error, self.times, self.waits = error, times, list[float]()

    def list_groups(self, group: str, timeout: float) -> list[Any]:
        self.waits.append(timeout)
        if len(self.waits) <= self.times:
            raise KafkaException(KafkaError(self.error))
        return [SimpleNamespace(error=None, members=[SimpleNamespace(client_id="host/1")])]


@pytest.mark.parametrize(
    "error", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR]
)
def test_the_members_are_asked_for_again_while_a_broker_loads_its_groups(error: int) -> None:
    where = KafkaCoordinator("kafka://a:1/state?session-timeout=1200s").where
    admin = Loading(error, times=2)
    assert topics.members(admin, where, Ear(where), "g") == ["host/1"]
    assert len(admin.waits) == 3


def test_a_broker_that_loads_its_groups_for_longer_than_an_answer_may_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    where, admin = KafkaCoordinator("kafka://a:1/state").where, Loading(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, times=10**9)
    with hurried(monkeypatch), pytest.raises(StateUnavailable, match="looking at the group: COORDINATOR_LOAD_IN_PROGRESS"):
        topics.members(admin, where, Ear(where), "g")
    assert admin.waits == sorted(admin.waits, reverse=True)  # the requests share the time of one answer
    assert HURRY >= admin.waits[0] > admin.waits[-1]


def test_an_error_that_does_not_pass_is_raised_at_the_first_request() -> None:
    where = KafkaCoordinator("kafka://a:1/state?session-timeout=1200s").where
    admin = Loading(KafkaError.GROUP_AUTHORIZATION_FAILED, times=10**9)
    with pytest.raises(StateInvalid, match="GROUP_AUTHORIZATION_FAILED"):
        topics.members(admin, where, Ear(where), "g")
    assert len(admin.waits) == 1


def test_a_record_that_was_sent_twice_because_its_answer_was_lost_counts_once_and_is_answered(
    state: KafkaCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = StateLog._send

    def twice(self: StateLog, text: str) -> int:
        send(self, text)
        return send(self, text)

    monkeypatch.setattr(StateLog, "_send", twice)
    with closing(state.candidate("p", "leader")) as leader:
        term = until(leader.campaign)
        state.place(term, {LANE: mark(0)})
        with state.claim(term, LANE, 1) as claim:
            claim.advance(mark(3), Tally(delivered=3))
    assert (state.watermark("p", LANE), state.pipeline_state("p").delivered) == (mark(3), 3)


def test_a_leader_renews_several_times_within_its_deadline() -> None:
    assert KafkaCoordinator("kafka://a:1/state").renewal == 1.0
    assert KafkaCoordinator("kafka://a:1/state?session-timeout=6s").renewal == pytest.approx(0.4)


def test_who_may_be_silent_for_longer_waits_for_longer() -> None:
    assert KafkaCoordinator("kafka://a:1/state").where.patience == 2.0
    assert KafkaCoordinator("kafka://a:1/state?session-timeout=60s").where.patience == pytest.approx(8.0)


class Cut(Proxy):
    """Also tells clients that the broker is at the proxy's port, so that all they say goes through it."""

    def altered(self, data: bytes) -> bytes:
        here, there = (port.to_bytes(4, "big") for port in (self.port, self._target[1]))
        name = b"\x0a127.0.0.1"  # a compact string, and behind it the port
        return data.replace(name + there, name + here).replace(b"\x00\x09127.0.0.1" + there, b"\x00\x09127.0.0.1" + here)


class _Clock:
    """Time that also goes on when a test says so; a slower one hardly goes on by itself."""

    def __init__(self, more: list[float], pace: float = 1.0) -> None:
        self._more, self._pace = more, pace

    def __call__(self) -> float:
        return time.monotonic() * self._pace + self._more[0]


@contextmanager
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers that cannot come are not waited for long."""
    with monkeypatch.context() as patched:
        patched.setattr(Address, "patience", HURRY)
        yield


def _tried(deed: Callable[[], object]) -> bool:
    """Whether the brokers could be asked."""
    try:
        deed()
    except StateUnavailable:
        return False
    return True
