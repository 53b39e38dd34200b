"""From a stash in an application's transaction to a receiver or to Kafka, through the whole program, whatever goes away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
import yaml

from deadline import until
from penstock.cli import main
from penstock.coordinators.postgres import PostgresCoordinator
from penstock.outbox import stash, stash_many
from penstock.testing import oracle
from penstock.testing.broker import Broker
from penstock.testing.postgres import PostgresServer
from penstock.testing.proxy import Proxy
from penstock.testing.receiver import ReceiverProcess
from program import Program, status


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverProcess]:
    made = ReceiverProcess(tmp_path / "requests").start()
    yield made
    made.stop()


def pipeline(folder: Path, dsn: str, sink: dict[str, Any], state: str = "state.db") -> Path:
    file = folder / "orders.yaml"
    source = {"type": "outbox", "database": dsn, "table": "outbox", "reader": "snapshot"}
    file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, "state": state}))
    return file


def test_what_is_stashed_arrives_in_order_also_through_a_restart_of_postgres(
    breakable_postgres: PostgresServer, tmp_path: Path, receiver: ReceiverProcess
) -> None:
    dsn = breakable_postgres.create_database()
    assert main(["outbox", "init", dsn]) == 0
    retry = {"tries": "forever", "policy": "exponential", "min": "10ms", "max": "200ms"}
    file = pipeline(tmp_path, dsn, {"type": "webhook", "url": receiver.url, "retry": retry})
    program = Program(tmp_path, file)

    def came() -> list[Any]:
        return [change for one in oracle.deliveries(receiver.requests) for change in [one]]

    def values() -> list[Any]:
        return [(one.change.get("after") or {}).get("value") for one in came()]

    try:
        with psycopg.connect(dsn) as late, psycopg.connect(dsn) as writer:
            stash(late, "orders", "7", "late")
            stash(writer, "orders", "1", {"n": 1}, {"trace": "abc"})
            stash(writer, "files", b"\xff", b"\x00\xff")
            stash(writer, "orders", "1", None)
            writer.commit()
            until(lambda: len(came()) >= 3, what=program.tail)
            late.commit()
        until(lambda: "late" in values(), what=program.tail)

        breakable_postgres.restart()
        with psycopg.connect(dsn) as writer:
            stash_many(writer, [("orders", str(n % 5), f"v{n}") for n in range(50)])
            writer.commit()
            stash(writer, "orders", "0", "rolled back")
            writer.rollback()
        until(lambda: "v49" in values(), what=program.tail)

        def is_empty() -> bool:
            return breakable_postgres.execute("select count(*) from outbox", dsn) == [(0,)]

        until(is_empty, what=program.tail)
        code, [seen] = status(file)
        assert (code, seen["state"], seen["position"], seen["head"], seen["backlog"]) == (0, "leading", 54, 54, 0)
        assert program.terminate() == 0
        moments = [datetime.fromisoformat(event["at"]) for event in program.events("Delivered")]
        assert len(moments) <= 2 + (moments[-1] - moments[0]).total_seconds(), "told too often"
        assert sum(event["changes"] for event in program.events("Delivered")) <= 54
        assert dsn not in program.said()
        assert breakable_postgres.password not in program.said()
    finally:
        program.kill_tree()
    told = {one.position: one.change for one in came()}
    assert sorted(told) == list(range(1, 55))
    first = {"table": "orders", "op": "insert", "key": {"key": "1"}, "after": {"value": '{"n":1}', "headers": [["trace", "abc"]]}}
    assert told[1].items() >= first.items()
    assert (told[2]["table"], told[2]["key"], told[2]["after"]["value"]) == ("files", {"key": {"$blob": "/w=="}}, {"$blob": "AP8="})
    assert (told[3]["op"], told[3]["key"]) == ("delete", {"key": "1"})
    assert told[4]["after"]["value"] == "late"
    assert oracle.order(oracle.deliveries(receiver.requests)) == []
    assert "rolled back" not in values()


class Generator(Thread):
    """Twenty messages a transaction over ten keys, until told to end; some transactions are rolled back, some commit late."""

    def __init__(self, dsn: str, topic: str) -> None:
        super().__init__(name="generator", daemon=True)
        self._dsn, self._topic, self._leaving, self.made = dsn, topic, Event(), list[str]()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as writer, psycopg.connect(self._dsn) as late:
            for number in count():
                if self._leaving.wait(0.2):
                    break
                held = number % 7 == 0
                stash(late if held else writer, self._topic, "late", f"late {number}")
                batch = [(self._topic, f"key {n % 10}", f"{number * 20 + n}", {"testId": "T1"}) for n in range(20)]
                stash_many(writer, batch)
                if number % 5 == 4:
                    writer.rollback()
                    continue
                writer.commit()
                self.made += [value for _, _, value, _ in batch]
                if number % 7 == 6:
                    late.commit()

    def end(self) -> None:
        self._leaving.set()
        self.join()


class Meddler(Thread):
    """Breaks all connections to Kafka off, again and again."""

    def __init__(self, route: Proxy) -> None:
        super().__init__(name="meddler", daemon=True)
        self._route, self._leaving = route, Event()

    def run(self) -> None:
        while not self._leaving.wait(3):
            self._route.sever()

    def end(self) -> None:
        self._leaving.set()
        self.join()


def test_with_one_two_and_four_processes_kafka_has_every_message_once_and_each_key_in_order(
    breakable_postgres: PostgresServer, tmp_path: Path, breakable_broker: Broker
) -> None:
    """One alone, then four, of which the leaders are killed and stopped one after the other, while connections break."""
    dsn, topic = breakable_postgres.create_database(), breakable_broker.create()
    assert main(["outbox", "init", dsn]) == 0
    sink = {"type": "kafka", "delivery": "exactly-once", "config": {"bootstrap.servers": breakable_broker.routed}}
    file = pipeline(tmp_path, dsn, sink, state=dsn)

    state = PostgresCoordinator(f"{dsn}?connect_timeout=60")

    def until_more(team: list[Program]) -> None:
        before = state.standing("orders").delivered
        tails = lambda: "\n".join(one.tail() for one in team)  # noqa: E731
        until(lambda: state.standing("orders").delivered > before + 100, what=tails)

    def leader(team: list[Program]) -> Program:
        pid = int((state.standing("orders").holder or ":0").split(":")[1])
        return next(one for one in team if one.pid == pid)

    with breakable_broker.route() as route:
        generator, meddler, team = Generator(dsn, topic), Meddler(route), [Program(tmp_path, file)]
        everybody = team
        try:
            generator.start()
            meddler.start()
            until_more(team)
            team = everybody = team + [Program(tmp_path, file) for _ in range(3)]
            until(lambda: state.standing("orders").standbys == 3)
            for end in (Program.kill_tree, Program.terminate, Program.terminate):
                gone = leader(team)
                assert end(gone) in (None, 0), gone.tail()
                team = [one for one in team if one is not gone]
                until_more(team)
            generator.end()
            meddler.end()
            until(lambda: breakable_postgres.execute("select count(*) from outbox", dsn) == [(0,)], what=team[0].tail)
            assert team[0].terminate() == 0
        finally:
            generator.end()
            meddler.end()
            for program in everybody:
                program.kill_tree()
    numbers: dict[bytes, list[int]] = {}
    for record in breakable_broker.records(topic):
        if record.key != b"late":
            assert record.headers == [("testId", b"T1")]
            numbers.setdefault(record.key or b"", []).append(int(record.value or b""))
    assert all(found == sorted(set(found)) for found in numbers.values()), "repeated, or out of order"
    assert sorted(number for found in numbers.values() for number in found) == sorted(map(int, generator.made))
