"""The table of goharvest through the whole program: writers that never rest, leaders that die at the worst moment."""

from __future__ import annotations

from itertools import count, pairwise
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
import yaml

from deadline import until
from penstock.cli import main
from penstock.testing.broker import Broker, Record
from penstock.testing.postgres import PostgresServer
from program import Program, status

INSERT = """
insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values (now(), %s, %s, %s, '{testId}', '{T1}')
"""


class Generator(Thread):
    """Twenty rows a transaction over ten keys until told to end; some are rolled back, and some commit late."""

    def __init__(self, dsn: str, topic: str) -> None:
        super().__init__(name="generator", daemon=True)
        self._dsn, self._topic, self._leaving, self.made, self.late = dsn, topic, Event(), list[int](), list[str]()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as writer, psycopg.connect(self._dsn) as late:
            for number in count():
                if self._leaving.wait(0.1):
                    break
                late.execute(INSERT, (self._topic, "late", f"late {number}"))
                rows = [(self._topic, f"key {n % 10}", str(n)) for n in range(number * 20, number * 20 + 20)]
                writer.cursor().executemany(INSERT, rows)
                if number % 5 == 4:
                    writer.rollback()
                    continue
                writer.commit()
                self.made += [int(value) for _, _, value in rows]
                if number % 7 == 6:
                    late.commit()
            late.commit()
            self.late = [f"late {n}" for n in range(number)]

    def end(self) -> None:
        self._leaving.set()
        self.join()


class Run:
    """What is left of it all."""

    def __init__(self, generator: Generator, records: list[Record], seen: list[Any], programs: list[Program]) -> None:
        self.generator, self.records, self.seen, self.programs = generator, records, seen, programs

    def values(self, key: str) -> list[str]:
        return [(one.value or b"").decode() for one in self.records if one.key == key.encode()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, breakable_postgres: PostgresServer, breakable_broker: Broker) -> Run:
    """The leader is killed as a whole between an acknowledgement and its purge; a worker of the next one dies in the same place."""
    folder, dsn, topic = (
        tmp_path_factory.mktemp("goharvest"),
        breakable_postgres.create_database(),
        breakable_broker.create(partitions=2),
    )
    assert main(["outbox", "init", dsn, "--layout", "goharvest"]) == 0
    file = folder / "orders.yaml"
    source = {"type": "outbox", "database": dsn, "reader": "mark"}
    retry = {"tries": "forever", "min": "10ms", "max": "200ms"}
    sink = {"type": "kafka", "delivery": "barrier", "config": {"bootstrap.servers": breakable_broker.servers}, "retry": retry}
    file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, "state": dsn}))
    generator, programs, seen = Generator(dsn, topic), [Program(folder, file)], list[Any]()

    def left() -> int:
        [(rows,)] = breakable_postgres.execute("select count(*) from outbox", dsn)
        return int(rows)

    try:
        generator.start()
        programs[0].until_event("Delivered")
        programs.append(Program(folder, file))
        programs[1].until_event("StandingBy")
        programs[0].arm("sink.purging", "pause")
        programs[0].until_reached("sink.purging")
        programs[0].kill_tree()
        programs[1].until_event("Delivered")
        programs[1].arm("sink.purging", "kill")
        programs[1].until_event("LaneClaimed", count=2)
        seen.append(status(file))
        breakable_broker.pause()
        until(lambda: left() > 100, what=programs[1].tail)
        breakable_broker.resume()
        generator.end()
        until(lambda: left() == 0, what=programs[1].tail)
        until(lambda: (ended := status(file))[1][0]["position"] == ended[1][0]["head"] and not ended[1][0]["error"])
        seen.append(status(file))
        assert programs[1].terminate() == 0
    finally:
        breakable_broker.resume()
        generator.end()
        for program in programs:
            program.kill_tree()
    return Run(generator, breakable_broker.records(topic), seen, programs)


def test_nothing_is_lost_and_what_was_rolled_back_never_was(run: Run) -> None:
    came = {int(value) for key in range(10) for value in run.values(f"key {key}")}
    assert came == set(run.generator.made)
    assert set(run.values("late")) == set(run.generator.late)
    assert all(one.headers == [("testId", b"T1")] for one in run.records)


def test_of_a_key_no_record_comes_after_a_later_one(run: Run) -> None:
    for key in range(10):
        numbers = [int(value) for value in run.values(f"key {key}")]
        assert numbers[0] == key
        assert all(a <= b for a, b in pairwise(numbers)), "R0 R1 R1 R2 may be, R0 R1 R2 R0 never"


def test_a_death_between_acknowledgement_and_purge_repeats_a_record_of_a_key_and_no_more(run: Run) -> None:
    repeats = len(run.records) - len({(one.key, one.value) for one in run.records})
    assert repeats > 0, "the deaths came too late to prove anything"
    for key in range(10):
        numbers = [int(value) for value in run.values(f"key {key}")]
        assert max(numbers.count(number) for number in numbers) <= 4, "two deaths and one outage"


def test_the_status_tells_of_it_and_no_secret_is_said(run: Run) -> None:
    (code, [seen]), (_, [ended]) = run.seen
    assert (code, seen["state"]) == (0, "leading")
    assert (ended["backlog"], ended["error"], ended["position"]) == (0, None, ended["head"])
    assert not any(event["event"] == "Halted" for program in run.programs for event in program.events())
