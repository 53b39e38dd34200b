"""The nemesis over the way from an outbox in Postgres to Kafka, exactly once and at least once, with all state in Postgres."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

import psycopg
import yaml

from deadline import PATIENCE, until
from fix_rig import QUICK, TERM, Rig
from nemesis import Nemesis
from penstock.coordinator import PipelineState
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.errors import StateUnavailable
from penstock.outbox import stash_many
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import LANE
from program import Program, send
from servers.broker import Broker, Record
from servers.postgres import PostgresServer
from servers.proxy import Proxy

ONCE, LEAST = "once", "least"
DELIVERIES = {ONCE: "exactly-once", LEAST: "at-least-once"}

Made = Mapping[str, set[int]]
"""The numbers of the messages of each key that were committed."""


class Relay(Rig):
    """One outbox, two pipelines in each process, and a network of its own between each process and Postgres."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.server, self.broker, self._term = folder, ONCE, server, broker, TERM
        self.dsn = server.create_database()
        init(self.dsn, Names("outbox"))
        server.execute("create table made (key text, number bigint, primary key (key, number))", self.dsn)
        self.state, self._standing = PostgresCoordinator(f"{self.dsn}?connect_timeout=60"), PipelineState()
        self.programs, self.leaving, self.receiver = [], [], Silent()
        self._stage = ExitStack()
        self.to_kafka = self._stage.enter_context(broker.route())
        self.to_postgres: dict[int, Proxy] = {}
        self.topics = {name: broker.create(f"{name}.{folder.name}") for name in DELIVERIES}
        self.file, self.second = [self._written(name) for name in DELIVERIES]

    def _written(self, name: str) -> Path:
        sink = {
            "type": "kafka",
            "delivery": DELIVERIES[name],
            "topic": self.topics[name],
            "config": {"bootstrap.servers": self.broker.routed},
            "retry": QUICK,
        }
        dsn = self.dsn.replace(f":{self.server.port}/", ":${RELAY_PORT}/")
        file = self.folder / f"{name}.yaml"
        source = {"type": "outbox", "database": dsn}
        file.write_text(yaml.safe_dump({"name": name, "source": source, "sink": sink, "state": dsn, "term": self._term}))
        return file

    def recruit(self) -> Program:
        """One more process on both pipelines, behind a proxy of its own."""
        proxy = self._stage.enter_context(Proxy(self.server.port))
        program = self.start(self.second, env={"RELAY_PORT": str(proxy.port)})
        self.to_postgres[program.pid] = proxy
        return program

    def freeze(self, program: Program, *_: Rig) -> None:
        """Stop a process where it stands, whatever it holds."""
        send(signal.SIGSTOP, program.tree())

    @property
    def position(self) -> int:
        """What both pipelines have delivered."""
        return min(self._position_of(name) for name in DELIVERIES)

    def _position_of(self, name: str) -> int:
        with suppress(StateUnavailable):
            mark = self.state.watermark(name, LANE)
            return mark.position if mark else 0
        return 0

    def made(self) -> dict[str, set[int]]:
        """What was committed, as its writers say."""
        found: dict[str, set[int]] = {}
        for key, number in self.server.execute("select key, number from made", self.dsn):
            found.setdefault(key, set()).add(number)
        return found

    def until_settled(self, within: float = PATIENCE) -> None:
        """Wait until both pipelines have delivered everything, and the outbox is empty."""
        [(count,)] = self.server.execute("select count(*) from made", self.dsn)
        until(lambda: self.position >= count, within, lambda: f"still at {self.position}, not at {count}\n{self.tails()}")
        until(lambda: self.server.execute("select count(*) from outbox", self.dsn) == [(0,)], within, self.tails)

    def verdicts(self, _: Sequence[object] = ()) -> dict[str, list[str]]:
        """What the oracles say of what a read_committed consumer has."""
        made, found = self.made(), dict[str, list[str]]()
        for name, delivery in DELIVERIES.items():
            for oracle, breaches in judged(self.records(name), made, is_exact=name == ONCE).items():
                found[f"{oracle}, {delivery}"] = breaches
        return found

    def records(self, name: str) -> list[Record]:
        """What a read_committed consumer has of a pipeline."""
        return self.broker.records(self.topics[name])

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill_tree()
        self._stage.close()


class Silent:
    """No receiver: the far side is Kafka."""

    url = None

    def turn(self, **_: object) -> None:
        """There is nothing to turn."""


def judged(records: Sequence[Record], made: Made, *, is_exact: bool) -> dict[str, list[str]]:
    """Lost, invented, out of order per key by first arrival; repeated, where nothing may be."""
    came: dict[str, list[int]] = {}
    for record in records:
        came.setdefault((record.key or b"").decode(), []).append(int(dict(record.headers)["number"] or b""))
    lost = [f"{key}: {n} was lost" for key, numbers in made.items() for n in sorted(numbers - {*came.get(key, ())})]
    invented = [
        f"{key}: {n} was never committed" for key, numbers in came.items() for n in sorted({*numbers} - made.get(key, set()))
    ]
    repeated = [f"{key}: {n} came again" for key, numbers in came.items() for n in _again(numbers)]
    return {
        "completeness": lost + invented,
        "order": [f"{key}: {late} came first behind {n}" for key, numbers in came.items() for n, late in _reversals(numbers)],
    } | ({"once": repeated} if is_exact else {})


def _again(numbers: Sequence[int]) -> Iterator[int]:
    seen: set[int] = set()
    for number in numbers:
        if number in seen:
            yield number
        seen.add(number)


def _reversals(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    highest, seen = -1, set[int]()
    for number in numbers:
        if number < highest and number not in seen:
            yield highest, number
        highest = max(highest, number)
        seen.add(number)


class Clerk(Thread):
    """Stashes messages of keys of its own, and notes in the same transaction that it did; some transactions stay open for long."""

    def __init__(self, relay: Relay, name: str, seed: int, rest: float = 0.02, longest: float = 0.0) -> None:
        super().__init__(name=f"clerk {name}", daemon=True)
        self._relay, self._chance, self._rest, self._longest = relay, Random(f"{name}{seed}"), rest, longest
        self._leaving, self._number, self.commits, self.rollbacks = Event(), 0, 0, 0
        self._keys = [f"{name}.{n}" for n in range(5)]

    def run(self) -> None:
        while not self._leaving.wait(self._rest * self._chance.random() * 2):
            with suppress(psycopg.OperationalError), psycopg.connect(self._relay.dsn, connect_timeout=int(PATIENCE)) as connection:
                while not self._leaving.wait(self._rest * self._chance.random() * 2):
                    self._act(connection)

    def stop(self) -> None:
        """Stop."""
        self._leaving.set()
        self.join(PATIENCE)

    def _act(self, connection: psycopg.Connection) -> None:
        """One transaction; one in ten is rolled back. Whether one was committed whose server went away, its note tells."""
        messages, notes = [], []
        for _ in range(self._chance.choice((1, 1, 1, 3, 20))):
            self._number += 1
            key, value = self._chance.choice(self._keys), self._chance.choice((None, b"\xff\x00", "x" * 300))
            messages.append(("orders", key, value, {"number": str(self._number)}))
            notes.append((key, self._number))
        stash_many(connection, messages)
        connection.cursor().executemany("insert into made values (%s, %s)", notes)
        self._leaving.wait(self._chance.random() * self._longest)
        if self._chance.random() < 0.1:
            connection.rollback()
            self.rollbacks += 1
        else:
            connection.commit()
            self.commits += 1


class Clerks:
    """Writers at work: two that are quick, and one whose transactions stay open."""

    def __init__(self, relay: Relay, seed: int, rest: float = 0.02) -> None:
        self._staff = [Clerk(relay, "a", seed, rest), Clerk(relay, "b", seed, rest), Clerk(relay, "late", seed, rest, longest=3.0)]

    @property
    def commits(self) -> int:
        return sum(clerk.commits for clerk in self._staff)

    @property
    def rollbacks(self) -> int:
        return sum(clerk.rollbacks for clerk in self._staff)

    def start(self) -> None:
        for clerk in self._staff:
            clerk.start()

    def stop(self) -> None:
        for clerk in self._staff:
            clerk.stop()


@contextmanager
def relay_rig(folder: Path) -> Iterator[Relay]:
    """A relay with a database server and a broker of its own."""
    with PostgresServer() as server, Broker(folder / "kafka") as broker, Relay(folder, server, broker) as relay:
        yield relay


class RelayNemesis(Nemesis):
    """Breaks the processes, the broker, the database, and what lies between them."""

    _rig: Relay

    def _recruit(self) -> Program:
        return self._rig.recruit()

    def _until_progress(self) -> None:
        """Wait until both pipelines have delivered as much as is committed by now."""
        [(count,)] = self._rig.server.execute("select count(*) from made", self._rig.dsn)
        until(self._keeping_two(lambda: self._rig.position >= count), what=lambda: f"stuck before {count}\n{self.tails()}")

    def _change(self) -> None:
        key = f"healed.{self._rig.position}"
        with psycopg.connect(self._rig.dsn) as connection:
            stash_many(connection, [("orders", key, None, {"number": "1"})])
            connection.execute("insert into made values (%s, 1)", [key])

    def _are_at_work(self) -> bool:
        """Of both pipelines."""
        with suppress(StateUnavailable):
            others = [self._rig.state.pipeline_state(name) for name in DELIVERIES]
            return super()._are_at_work() and all(one.is_held and one.standbys >= 1 for one in others)
        return False

    def _stop_the_leader_inside_a_transaction(self) -> None:
        """Everything of it was sent, and nothing committed; when it wakes up, somebody else has the lane."""
        victim = self._paused_leader("sink.sending")
        self._dwell(0.5)
        self._rig.freeze(victim)
        victim.disarm()
        self._until_taken_over_from(victim)
        self._until_progress()
        send(signal.SIGCONT, victim.tree())

    def _paused_leader(self, point: str) -> Program:
        """The leader, which pauses at this point; the next one, if it was deposed before it came there."""
        while True:
            victim = until(self._keeping_two(self._rig.leader), what=self.tails)
            victim.arm(point, "pause")
            until(lambda victim=victim: victim.come_to(point) or self._rig.leader() is not victim, what=self.tails)
            if victim.come_to(point):
                return victim
            victim.disarm()

    def _restart_the_broker(self) -> None:
        self._rig.broker.stop()
        self._dwell(2)
        self._rig.broker.start()

    def _kill_the_broker(self) -> None:
        self._rig.broker.kill()
        self._rig.broker.start()

    def _let_the_broker_hang(self) -> None:
        self._rig.broker.pause()
        self._dwell(4)
        self._rig.broker.resume()

    def _restart_postgres(self) -> None:
        self._rig.server.stop()
        self._dwell(2)
        self._rig.server.start()

    def _crash_postgres(self) -> None:
        self._rig.server.kill()
        self._rig.server.start()

    def _let_postgres_hang(self) -> None:
        """For more than a term."""
        self._rig.server.pause()
        self._rig.outlast(*self._team)
        self._dwell(3)
        self._rig.server.resume()

    def _cut_a_process_off_from_postgres(self) -> None:
        """For more than a term: the other one takes over."""
        proxy = self._rig.to_postgres[self._victim().pid]
        proxy.cut()
        self._rig.outlast(*self._team)
        self._dwell(3)
        proxy.heal()

    def _sever_connections_to_postgres(self) -> None:
        for proxy in self._rig.to_postgres.values():
            proxy.sever()

    def _cut_everybody_off_from_kafka(self) -> None:
        self._rig.to_kafka.cut()
        self._dwell(4)
        self._rig.to_kafka.heal()

    def _sever_connections_to_kafka(self) -> None:
        self._rig.to_kafka.sever()

    DEAR = (Nemesis._kill_the_whole_tree, Nemesis._kill_a_standby, Nemesis._kill_the_driver, Nemesis._kill_at_a_point)
    CHEAP = (
        Nemesis._kill_a_worker,
        Nemesis._stop_a_worker_for_a_while,
        Nemesis._stop_the_leader_past_its_term,
        Nemesis._pause_at_a_point,
    )
    SERVERS = (_restart_the_broker, _kill_the_broker, _let_the_broker_hang, _restart_postgres, _crash_postgres, _let_postgres_hang)
    NETWORK = (
        _cut_a_process_off_from_postgres,
        _sever_connections_to_postgres,
        _cut_everybody_off_from_kafka,
        _sever_connections_to_kafka,
    )
    DECKS = ((DEAR, 1), (CHEAP, 4), (SERVERS, 2), (NETWORK, 2), ((_stop_the_leader_inside_a_transaction,), 1))
    STEPS = (
        *DEAR,
        *CHEAP,
        *SERVERS,
        *NETWORK,
        *(_stop_the_leader_inside_a_transaction,) * 2,
        _cut_a_process_off_from_postgres,
        Nemesis._kill_a_worker,
        Nemesis._kill_at_a_point,
    )
