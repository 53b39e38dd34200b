"""Two outboxes through the same processes while writers go on, leaders die, and connections to Kafka break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from writers import Harvested, Stashed, Writer

from deadline import until
from fix_rig import TERM
from penstock.cli import main
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from program import Program, status
from servers.broker import Broker, Record
from servers.postgres import PostgresServer
from servers.proxy import Proxy


class Outbox:
    """One table, its writer, its pipeline file and its topic."""

    def __init__(self, name: str, folder: Path, server: PostgresServer, broker: Broker) -> None:
        self.name, self._server, self._broker, self.dsn = name, server, broker, server.create_database()
        self.topic, self.file = broker.create(partitions=2), folder / f"{name}.yaml"
        self.state, self.seen = PostgresCoordinator(f"{self.dsn}?connect_timeout=60"), list[Any]()

    def write(self, writer: type[Writer], reader: str, delivery: str) -> None:
        self.writer = writer(self.dsn, self.topic)
        source = {"type": "outbox", "database": self.dsn, "reader": reader}
        retry = {"tries": "forever", "min": "10ms", "max": "200ms"}
        sink = {"type": "kafka", "delivery": delivery, "config": {"bootstrap.servers": self._broker.routed}, "retry": retry}
        content = {"name": self.name, "source": source, "sink": sink, "state": f"{self.dsn}?connect_timeout=60", "term": TERM}
        self.file.write_text(yaml.safe_dump(content))

    def left(self) -> int:
        [(rows,)] = self._server.execute("select count(*) from outbox", self.dsn)
        return int(rows)

    def leader(self, team: list[Program]) -> Program:
        pid = int((self.state.pipeline_state(self.name).holder or ":0").split(":")[1])
        return next(one for one in team if one.pid == pid)

    def until_more(self, team: list[Program]) -> None:
        before = self.state.pipeline_state(self.name).delivered
        until(lambda: self.state.pipeline_state(self.name).delivered > before + 100, what=lambda: tails(team))

    def events(self, kind: str, team: list[Program]) -> list[dict[str, Any]]:
        return [one for program in team for one in program.events(kind) if one["pipeline"] == self.name]

    def records(self) -> list[Record]:
        return self._broker.records(self.topic)


def tails(team: list[Program]) -> str:
    return "\n".join(one.tail() for one in team)


class Meddler(Thread):
    """Ends all connections to Kafka, again each time that both outboxes have moved on."""

    def __init__(self, route: Proxy, outboxes: Sequence[Outbox]) -> None:
        super().__init__(name="meddler", daemon=True)
        self._route, self._outboxes, self._leaving, self.times = route, outboxes, Event(), 0

    def run(self) -> None:
        before = self._delivered()
        while not self._leaving.wait(1):
            now = self._delivered()
            if all(after > then + 100 for after, then in zip(now, before, strict=True)):
                self._route.sever()
                before, self.times = now, self.times + 1

    def _delivered(self) -> list[int]:
        return [one.state.pipeline_state(one.name).delivered for one in self._outboxes]

    def end(self) -> None:
        self._leaving.set()
        self.join()


class Relay:
    """Both outboxes, and the processes that carry them."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker) -> None:
        self._folder = folder
        self.orders, self.harvest = (Outbox(name, folder, server, broker) for name in ("relayed", "harvest"))
        assert main(["outbox", "init", self.orders.dsn]) == 0
        assert main(["outbox", "init", self.harvest.dsn, "--layout", "goharvest"]) == 0
        self.orders.write(Stashed, "snapshot", "exactly-once")
        self.harvest.write(Harvested, "mark", "barrier")
        self.team, self.everybody = list[Program](), list[Program]()

    @property
    def both(self) -> tuple[Outbox, Outbox]:
        return self.orders, self.harvest

    def start(self) -> Program:
        program = Program(self._folder, self.orders.file, self.harvest.file)
        self.team, self.everybody = [*self.team, program], [*self.everybody, program]
        return program

    def lose(self, program: Program) -> None:
        self.team = [one for one in self.team if one is not program]

    def until_more(self) -> None:
        for one in self.both:
            one.until_more(self.team)

    def end(self) -> None:
        for one in self.both:
            if one.writer.is_alive():
                one.writer.end()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, broker: Broker) -> Iterator[Relay]:
    made = Relay(tmp_path_factory.mktemp("relay"), postgres_server, broker)
    with broker.route() as route:
        meddler = Meddler(route, made.both)
        try:
            for one in made.both:
                one.writer.start()
            meddler.start()
            _alone_and_then_three(made)
            _killed_as_a_whole(made)
            _killed_in_part(made)
            _cut_off(made, route)
            _stopped(made)
            meddler.end()
            assert meddler.times, "no connection was ended"
            _drained(made)
        finally:
            made.end()
            meddler.end()
            for program in made.everybody:
                program.kill_tree()
    yield made
    for one in made.both:
        postgres_server.drop_database(one.dsn)


def _alone_and_then_three(relay: Relay) -> None:
    first = relay.start()
    relay.until_more()
    for standby in (relay.start(), relay.start()):
        for one in relay.both:
            standby.until_event("StandingBy", pipeline=one.name)
    for one in relay.both:
        assert one.leader(relay.team) is first
        until(lambda one=one: one.state.pipeline_state(one.name).standbys == 2, what=lambda: tails(relay.team))


def _killed_as_a_whole(relay: Relay) -> None:
    """The leader of both, between an acknowledgement of Kafka and the purge of the rows."""
    first = relay.team[0]
    first.arm("sink.purging", "pause")
    first.until_reached("sink.purging")
    first.kill_tree()
    relay.lose(first)
    for standby in relay.team:
        standby.hold_back()  # its death alone gives them the term, not a silence
    relay.until_more()


def _killed_in_part(relay: Relay) -> None:
    """A worker of the next leader, at the same place."""
    harvest = relay.harvest
    leader = harvest.leader(relay.team)
    claims = len(harvest.events("LaneClaimed", [leader]))
    leader.arm("sink.purging", "kill")
    leader.until_event("LaneClaimed", count=claims + 1, pipeline=harvest.name)
    harvest.seen.append(status(harvest.file))


def _cut_off(relay: Relay, route: Proxy) -> None:
    """Until the client has given up what was under way."""
    returned = len(relay.harvest.events("MessagesReturned", relay.team))
    route.cut()
    until(lambda: len(relay.harvest.events("MessagesReturned", relay.team)) > returned, what=lambda: tails(relay.team))
    route.heal()
    relay.until_more()


def _stopped(relay: Relay) -> None:
    gone = relay.orders.leader(relay.team)
    assert gone.terminate() == 0, gone.tail()
    relay.lose(gone)
    relay.until_more()


def _drained(relay: Relay) -> None:
    relay.end()
    [last] = relay.team
    for one in relay.both:
        until(lambda one=one: one.left() == 0, what=last.tail)
    harvest = relay.harvest
    until(lambda: (ended := status(harvest.file))[1][0]["position"] == ended[1][0]["head"] and not ended[1][0]["error"])
    harvest.seen.append(status(harvest.file))
    assert last.terminate() == 0


def test_with_one_two_and_three_processes_kafka_has_every_message_once_and_each_key_in_order(relay: Relay) -> None:
    """One alone, then three, of which one leader is killed and the next one stopped, while connections break."""
    numbers: dict[bytes, list[int]] = {}
    for record in relay.orders.records():
        if record.key != b"late":
            assert record.headers == [("testId", b"T1")]
            numbers.setdefault(record.key or b"", []).append(int(record.value or b""))
    assert all(found == sorted(set(found)) for found in numbers.values()), "repeated, or out of order"
    assert sorted(number for found in numbers.values() for number in found) == sorted(relay.orders.writer.made)


@pytest.fixture(scope="module")
def harvested(relay: Relay) -> list[Record]:
    return relay.harvest.records()


def values(records: list[Record], key: str) -> list[str]:
    return [(one.value or b"").decode() for one in records if one.key == key.encode()]


def numbers_of(records: list[Record]) -> Iterator[tuple[int, list[int]]]:
    for key in range(10):
        yield key, [int(value) for value in values(records, f"key {key}")]


def test_nothing_is_lost_and_what_was_rolled_back_never_was(relay: Relay, harvested: list[Record]) -> None:
    assert {number for _, numbers in numbers_of(harvested) for number in numbers} == set(relay.harvest.writer.made)
    assert set(values(harvested, "late")) == set(relay.harvest.writer.late)
    assert all(one.headers == [("testId", b"T1")] for one in harvested)


def test_of_a_key_no_record_comes_after_a_later_one(harvested: list[Record]) -> None:
    for key, numbers in numbers_of(harvested):
        assert numbers[0] == key
        assert all(a <= b for a, b in pairwise(numbers)), "R0 R1 R1 R2 may be, R0 R1 R2 R0 never"


def test_a_death_between_acknowledgement_and_purge_repeats_a_record_of_a_key_and_no_more(
    relay: Relay, harvested: list[Record]
) -> None:
    repeats = len(harvested) - len({(one.key, one.value) for one in harvested})
    assert repeats > 0, "the deaths came too late to prove anything"
    attempts = relay.harvest.events("LaneClaimed", relay.everybody) + relay.harvest.events("MessagesReturned", relay.everybody)
    for _, numbers in numbers_of(harvested):
        assert len(numbers) - len(set(numbers)) < len(attempts), "an attempt has repeated more than one record of a key"


def test_the_status_tells_of_it_and_no_secret_is_said(relay: Relay, postgres_server: PostgresServer) -> None:
    (code, [seen]), (_, [ended]) = relay.harvest.seen
    assert (code, seen["state"]) == (0, "leading")
    assert (ended["backlog"], ended["error"], ended["position"]) == (0, None, ended["head"])
    assert not any(program.events("Halted") for program in relay.everybody)
    assert not any(postgres_server.password in program.said() for program in relay.everybody)
