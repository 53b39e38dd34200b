"""One, four and eight harvests of two processes on one table, started and stopped one by one, with producers that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
import yaml

from deadline import PATIENCE, until
from penstock.cli import main
from penstock.harvest import Harvest
from penstock.harvest.config import load
from program import altered_by
from servers.broker import Broker, Record
from servers.postgres import PostgresServer

KEYS, ROWS, MANY, PAUSE = 10, 20, 500, 0.1
INSERT = """
insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values (now(), %s, %s, %s, '{testId}', %s)
"""

# The harvests of one process: told by lines to start or stop one, and all to stop at the end.
_SCRIPT = """
import json, sys, threading, time
from penstock.harvest import Harvest
from penstock.harvest.config import load

def main():
    config, name, turn = load(sys.argv[1]).harvest, sys.argv[2], threading.Lock()
    def say(who, what):
        with turn:
            print(json.dumps([time.time(), who, what]), flush=True)
    def made(who):
        def hear(event):
            say(who, type(event).__name__)
        return Harvest(config, hear, hear)
    harvests = {}
    for line in sys.stdin:
        deed, who = line.split()
        if deed == "start":
            harvests[who] = made(who)
            harvests[who].start()
        else:
            harvests[who].stop()
            say(who, "ended" if harvests[who].wait(900) else "did not end")

if __name__ == "__main__":
    main()
"""


class Generator(Thread):
    """Twenty rows a transaction, a few milliseconds apart, in spells, while few wait; every seventh transaction is rolled back."""

    def __init__(self, dsn: str, topic: str, test_id: str) -> None:
        super().__init__(name="generator", daemon=True)
        self._dsn, self._topic, self._test_id, self._leaving, self.made = dsn, topic, test_id, Event(), list[int]()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as writer:
            for number in count():
                if self._leaving.wait(0.005 if number % 5 else 0.8):
                    break
                while self._has_many(writer) and not self._leaving.wait(PAUSE):
                    continue
                numbers = range(number * ROWS, (number + 1) * ROWS)
                rows = [(self._topic, f"{n % KEYS}", f"{self._test_id}_{n}", [self._test_id]) for n in numbers]
                writer.cursor().executemany(INSERT, rows)
                if number % 7 == 6:
                    writer.rollback()
                else:
                    writer.commit()
                    self.made += numbers

    def _has_many(self, writer: psycopg.Connection) -> bool:
        """On a slow host more would be written than is carried, and no row of a moment would be the last."""
        [(count,)] = writer.execute("select count(*) from outbox").fetchall()
        return count > MANY

    def end(self) -> None:
        self._leaving.set()
        self.join()


class House:
    """A process, and what its harvests say."""

    def __init__(self, name: str, file: Path, env: dict[str, str]) -> None:
        self.name, self._said, self._log = name, file.with_name(f"{name}.said"), file.with_name(f"{name}.log")
        with self._said.open("w") as said, self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, str(file), name],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def tell(self, deed: str, who: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{deed} {who}\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Nothing more will be told; its exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def said(self) -> list[tuple[float, str, str]]:
        return [tuple(json.loads(line)) for line in self._said.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def tail(self) -> str:
        return f"{self.name}: {self.said()[-8:]}\n{self._log.read_text()[-3000:]}"


@dataclass
class Street:
    """Both processes, and who of them runs."""

    houses: dict[str, House]
    running: list[str] = field(default_factory=list)

    def start(self, who: str) -> None:
        self.houses[who[0]].tell("start", who)
        self.until(who, "StandingBy", "LeaderAcquired")
        self.running.append(who)

    def stop(self, who: str) -> None:
        self.houses[who[0]].tell("stop", who)
        self.until(who, "ended", "did not end")
        self.running.remove(who)

    def until(self, who: str, *kinds: str) -> None:
        until(
            lambda: any(one == who and kind in kinds for _, one, kind in self.said()),
            what=lambda: f"{who} {kinds}\n{self.tail()}",
        )

    def said(self) -> list[tuple[float, str, str]]:
        return sorted(line for house in self.houses.values() for line in house.said())

    def leader(self) -> str | None:
        """Who leads now, as far as they have said."""
        found = None
        for _, who, kind in self.said():
            if kind == "LeaderAcquired":
                found = who
            elif found == who and kind in ("LeaderRevoked", "LeaderFenced", "ended"):
                found = None
        return found

    def next_to_go(self) -> str:
        """The last one of a process if there is another process, and otherwise who leads: so it goes over, and moves within one."""
        left = Counter(who[0] for who in self.running)
        alone = [who for who in self.running if left[who[0]] == 1]
        return alone[0] if alone and len(left) > 1 else until(self.leader, what=self.tail)

    def leaders(self) -> list[str]:
        """Who has led, one after the other."""
        return [who for _, who, kind in self.said() if kind == "LeaderAcquired"]

    def tail(self) -> str:
        return "\n".join(house.tail() for house in self.houses.values())


@dataclass
class Run:
    """What is left of it all."""

    generator: Generator
    records: list[Record]
    faults: Counter[str]
    street: Street
    letters: int

    def numbers(self, key: int) -> list[int]:
        return [int((one.value or b"").decode().rpartition("_")[2]) for one in self.records if one.key == b"%d" % key]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, postgres_of_module: str, postgres_server: PostgresServer, broker: Broker) -> Run:
    """One runs, then four, then eight; then they go one by one, mostly whoever leads, while rows are written all the time."""
    folder, dsn, topic = tmp_path_factory.mktemp("faults"), postgres_of_module, broker.create(partitions=3)
    assert main(["outbox", "init", dsn, "--layout", "goharvest"]) == 0
    notes, file, generator = folder / "faults", reaper_file(folder, broker, dsn), Generator(dsn, topic, folder.name)
    notes.touch()
    faults = {"PENSTOCK_TEST_FAULTS": "0.02", "PENSTOCK_TEST_FAULTS_TOLD": str(notes)}
    env = {**altered_by("faulty"), **faults}
    street = Street({name: House(name, file, env) for name in "ab"})

    def told() -> Counter[str]:
        return Counter(notes.read_text().split())

    def carried() -> None:
        """Until all that is written by now was delivered."""
        [(last,)] = postgres_server.execute("select last_value from outbox_id_seq", dsn)
        left = f"select count(*) from outbox where id <= {last}"
        until(lambda: postgres_server.execute(left, dsn) == [(0,)], what=street.tail)

    try:
        generator.start()
        for who in ("a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"):
            street.start(who)
            if len(street.running) in (1, 4, 8):
                carried()
        while len(street.running) > 1:
            street.stop(street.next_to_go())
            carried()
        until(lambda: min(told()["produce"], told()["delivery"]) > 10 and len(generator.made) > 1000, what=street.tail)
        generator.end()
        carried()
        street.stop(street.running[0])
        assert [house.end() for house in street.houses.values()] == [0, 0], street.tail()
    finally:
        generator.end()
        for house in street.houses.values():
            house.process.kill()
            house.end()
    assert postgres_server.execute("select count(*) from outbox", dsn) == [(0,)]
    pipeline = Harvest(load(file).harvest).pipeline
    letters = len(list(pipeline.state.letters(pipeline.name)))
    return Run(generator, broker.records(topic), told(), street, letters)


def reaper_file(folder: Path, broker: Broker, dsn: str) -> Path:
    limits = {"heartbeatTimeout": "20s", "ioErrorBackoff": "10ms"}
    names = {"leaderTopic": f"{folder.name}.neli", "leaderGroupID": folder.name, "dataSource": dsn}
    file = folder / "reaper.yaml"
    file.write_text(
        yaml.safe_dump({"harvest": {"baseKafkaConfig": {"bootstrap.servers": broker.servers}, **names, "limits": limits}})
    )
    return file


def test_every_committed_row_comes_and_nothing_that_was_rolled_back(run: Run) -> None:
    assert {n for key in range(KEYS) for n in run.numbers(key)} == set(run.generator.made)
    assert len(run.generator.made) > 1000
    test_id = run.generator._test_id.encode()
    assert {(tuple(one.headers), (one.value or b"").rpartition(b"_")[0]) for one in run.records} == {
        ((("testId", test_id),), test_id)
    }


def test_a_key_begins_with_its_first_row_and_never_goes_back(run: Run) -> None:
    for key in range(KEYS):
        numbers = run.numbers(key)
        assert numbers[0] == key
        assert [pair for pair in pairwise(numbers) if pair[0] > pair[1]] == [], "R0 R1 R1 R2 may be, R0 R1 R2 R0 never"


def test_faults_of_both_kinds_were_injected_and_pass_without_a_dead_letter(run: Run) -> None:
    assert min(run.faults["produce"], run.faults["delivery"]) > 10
    repeats = len(run.records) - len({one.value for one in run.records})
    assert repeats >= run.faults["delivery"] * 0.9, "of which a failure is reported that was none, comes again"
    assert run.letters == 0
    kinds = Counter(kind for _, _, kind in run.street.said())
    assert kinds["LeaderRefreshed"] > 10
    assert kinds["Halted"] + kinds["did not end"] == 0
    assert kinds["ended"] == 8


def test_leadership_went_from_process_to_process_and_from_harvest_to_harvest_within_one(run: Run) -> None:
    moves = [(before, after) for before, after in pairwise(run.street.leaders()) if before != after]
    assert len(moves) >= 4
    assert {before[0] == after[0] for before, after in moves} == {True, False}, moves
