"""From a stash in an application's transaction to a receiver, through the whole program, with a Postgres that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
import yaml

from deadline import until
from penstock.cli import main
from penstock.outbox import stash, stash_many
from penstock.testing import oracle
from penstock.testing.postgres import PostgresServer
from penstock.testing.receiver import ReceiverProcess
from program import Program, status

WITHIN = 90.0


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverProcess]:
    made = ReceiverProcess(tmp_path / "requests").start()
    yield made
    made.stop()


def pipeline(folder: Path, dsn: str, url: str) -> Path:
    file = folder / "orders.yaml"
    sink = {"type": "webhook", "url": url, "retry": {"tries": "forever", "policy": "exponential", "min": "10ms", "max": "200ms"}}
    source = {"type": "outbox", "database": dsn, "table": "outbox", "reader": "snapshot"}
    file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, "state": "state.db"}))
    return file


@pytest.mark.timeout(400)
def test_what_is_stashed_arrives_in_order_also_through_a_restart_of_postgres(
    private_postgres: PostgresServer, tmp_path: Path, receiver: ReceiverProcess
) -> None:
    dsn = private_postgres.create_database()
    assert main(["outbox", "init", dsn]) == 0
    file = pipeline(tmp_path, dsn, receiver.url)
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
            until(lambda: len(came()) >= 3, WITHIN, program.tail)
            late.commit()
        until(lambda: "late" in values(), WITHIN, program.tail)

        private_postgres.restart()
        with psycopg.connect(dsn) as writer:
            stash_many(writer, [("orders", str(n % 5), f"v{n}") for n in range(50)])
            writer.commit()
            stash(writer, "orders", "0", "rolled back")
            writer.rollback()
        until(lambda: "v49" in values(), WITHIN, program.tail)

        def is_empty() -> bool:
            return private_postgres.execute("select count(*) from outbox", dsn) == [(0,)]

        until(is_empty, WITHIN, program.tail)
        code, [seen] = status(file)
        assert (code, seen["state"], seen["position"], seen["head"], seen["backlog"]) == (0, "leading", 54, 54, 0)
        assert program.terminate() == 0
        assert dsn not in program.said()
        assert private_postgres.password not in program.said()
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

    def __init__(self, dsn: str) -> None:
        super().__init__(name="generator", daemon=True)
        self._dsn, self._leaving, self.made = dsn, Event(), list[str]()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as writer, psycopg.connect(self._dsn) as late:
            for number in count():
                if self._leaving.wait(0.2):
                    break
                held = number % 7 == 0
                stash(late if held else writer, "held" if held else "orders", "late", f"late {number}")
                batch = [("orders", f"key {n % 10}", f"{number * 20 + n}", {"testId": "T1"}) for n in range(20)]
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


@pytest.mark.timeout(400)
def test_through_the_death_of_a_leader_every_key_arrives_whole_and_in_order(
    private_postgres: PostgresServer, tmp_path: Path, receiver: ReceiverProcess
) -> None:
    """Two processes, a receiver that fails now and then, and writers that never rest."""
    dsn = private_postgres.create_database()
    assert main(["outbox", "init", dsn]) == 0
    receiver.turn(fail_rate=0.02)
    file = pipeline(tmp_path, dsn, receiver.url)
    generator, programs = Generator(dsn), [Program(tmp_path, file)]

    def came() -> set[str]:
        return {str((one.change.get("after") or {}).get("value")) for one in oracle.deliveries(receiver.requests)}

    try:
        generator.start()
        until(lambda: len(came()) > 100, WITHIN, programs[0].tail)
        programs.append(Program(tmp_path, file))
        programs[1].until_event("StandingBy", WITHIN)
        programs[0].kill_tree()
        before = len(came())
        until(lambda: len(came()) > before + 200, WITHIN, programs[1].tail)
        generator.end()
        until(lambda: came() >= set(generator.made), WITHIN, programs[1].tail)
        until(lambda: private_postgres.execute("select count(*) from outbox", dsn) == [(0,)], WITHIN, programs[1].tail)
        assert programs[1].terminate() == 0
    finally:
        generator.end()
        for program in programs:
            program.kill_tree()
    seen = oracle.deliveries(receiver.requests)
    assert oracle.order(seen) + oracle.chain(seen) == []
    numbers: dict[str, list[int]] = {}
    for one in sorted({delivery.position: delivery for delivery in seen}.values(), key=lambda delivery: delivery.position):
        if one.change["key"]["key"].startswith("key "):
            assert one.change["after"]["headers"] == [["testId", "T1"]]
            numbers.setdefault(one.change["key"]["key"], []).append(int(one.change["after"]["value"]))
    assert all(found == sorted(set(found)) for found in numbers.values())
    assert sorted(number for found in numbers.values() for number in found) == sorted(map(int, generator.made))
