"""From an outbox to Kafka in daily use: how long nobody delivers when a leader dies, and how large the outbox gets."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench.rig import Figure, at_most, keep, wait_until
from penstock.outbox import stash_many
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.testing.broker import Broker
from penstock.testing.postgres import PostgresServer

KILLS, PATIENCE = 5, 180.0
SECONDS, RATE, BATCH = 60, 5000, 500
PARTITIONS = 4


def measure() -> list[Figure]:
    with team() as pair:
        kills = [pair.killed() for _ in range(KILLS)]
        sizes = pair.loaded()
    half = len(sizes) // 2
    figures = [
        at_most("outbox to Kafka, takeover after kill -9, median", statistics.median(kills), "s", 2),
        Figure("outbox to Kafka, takeover after kill -9, worst", max(kills), "s"),
        Figure(f"outbox at {RATE} rows/s for {SECONDS} s, largest", max(sizes) / 1e6, "MB"),
        at_most("the same, second half to first", max(sizes[half:]) / max(sizes[:half]), "x", 1.5),
    ]
    keep("relay", figures, {"kills": kills, "sizes": sizes})
    return figures


@contextmanager
def team() -> Iterator[Team]:
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as server,
        Broker(Path(folder, "kafka")) as broker,
        closing(Team(Path(folder), server, broker)) as made,
    ):
        yield made


class Team:
    """A leader and a warm standby, with their state in the outbox's own database."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker) -> None:
        self._folder, self._dsn, self._topic = folder, server.create_database(), broker.create(partitions=PARTITIONS)
        init(self._dsn, Names("outbox"))
        sink = f"{{type: kafka, delivery: exactly-once, config: {{bootstrap.servers: '{broker.servers}'}}}}"
        source = f"{{type: outbox, database: '{self._dsn}'}}"
        self._file = folder / "relay.yaml"
        self._file.write_text(f"name: relay\nsource: {source}\nsink: {sink}\nstate: '{self._dsn}'\n")
        self._numbers, self._logs = count(1), dict[int, Path]()
        self._arrivals, self._leaving = list[float](), Event()
        self._consumer = Thread(target=self._consume, args=(broker.servers,), daemon=True)
        self._consumer.start()
        self._leader, self._standby = self._start("LaneClaimed"), self._start("StandingBy")

    def killed(self) -> float:
        """Seconds from the kill of the leader to the first record of its successor; messages are stashed all the time."""
        with psycopg.connect(self._dsn, autocommit=True) as database:
            self._pace(database, 3.0)
            began = time.time()
            self._leader.kill()
            while not (later := [at for at in self._arrivals if at > began + 0.1]):
                self._pace(database, 0.05)
        self._leader.wait()
        self._leader, self._standby = self._standby, self._start("StandingBy")
        return later[0] - began

    def loaded(self) -> list[int]:
        """The size of the outbox with its indexes, second by second."""
        sizes, began = [], time.time()
        with psycopg.connect(self._dsn, autocommit=True) as database:
            for turn in range(SECONDS * RATE // BATCH):
                stash_many(database, [(self._topic, str(number % 1000), b"." * 300) for number in range(BATCH)])
                time.sleep(max(0.0, began + turn * BATCH / RATE - time.time()))
                if turn % (RATE // BATCH) == 0:
                    sizes += [row[0] for row in database.execute("select pg_total_relation_size('outbox')")]
        return sizes

    def close(self) -> None:
        for process in (self._leader, self._standby):
            process.terminate()
            process.wait(60)
        self._leaving.set()
        self._consumer.join()

    def _pace(self, database: psycopg.Connection[Any], seconds: float) -> None:
        ends_at = time.time() + seconds
        while time.time() < ends_at:
            stash_many(database, [(self._topic, str(next(self._numbers) % 1000), b"." * 300)])
            time.sleep(0.01)

    def _consume(self, servers: str) -> None:
        settings = {"group.id": "bench-relay", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        with closing(Consumer({"bootstrap.servers": servers, **settings})) as consumer:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
            while not self._leaving.is_set():
                self._arrivals += [time.time() for message in consumer.consume(1000, 0.01) if not message.error()]

    def _start(self, until: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"relay.{next(self._numbers)}.log"
        command = [sys.executable, "-m", "penstock", "run", str(self._file), "--log-format", "json"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_until(lambda: f'"event":"{until}"' in log.read_text(), PATIENCE)
        return process
