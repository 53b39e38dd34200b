"""From an outbox in Postgres through Spark to a consumer of Kafka, all on this machine: backlogs, lateness, WAL and CPU."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.consumer import THRIFTY, Consuming
from bench.rig import Figure, Tree, at_least, at_most, has_claimed, keep, penstock_run, quantile, wait_until
from bench.warmth import steady_broker
from penstock.outbox import stash_many
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from servers.broker import Broker
from servers.postgres import PostgresServer

ROWS, KEYS, RUNS = 200_000, 10_000, 3
RATE, WARM, SECONDS = 1000, 25, 12
LOAD, PIECE, LOADED = 5000, 500, 60

Numbers = Iterable[tuple[int, int]]
"""Of messages, each with its key."""

Writer = Callable[[psycopg.Connection[Any], str, Numbers], None]


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary, PostgresServer() as server, steady_broker(Path(temporary, "kafka")) as broker:
        place = Rig(Path(temporary), server, broker)
        many = [place.drained("exactly-once", KEYS) for _ in range(RUNS)]
        one = [place.drained("exactly-once", 1) for _ in range(RUNS)]
        at_least_once = [place.late("at-least-once") for _ in range(RUNS)]
        exactly_once = [place.late("exactly-once") for _ in range(RUNS)]
        sizes = place.loaded()
    half = len(sizes) // 2
    figures = [
        at_least("drain of 200 000, 10 000 keys, exactly once", median(many, "rate"), "rows/s", 35_000),
        at_least("drain of 200 000, one key, exactly once", median(one, "rate"), "rows/s", 30_000),
        at_most("WAL for a row, its insert excluded", median(many, "wal"), "bytes", 500),
        at_most("CPU of all processes for 1 000 rows", median(many, "cpu"), "ms", 100),
        at_most("commit to consumer of one partition, at least once, p50", median(at_least_once, "p50"), "ms", 6),
        at_most("commit to consumer of one partition, at least once, p99", median(at_least_once, "p99"), "ms", 60),
        at_most("commit to consumer of one partition, exactly once, p50", median(exactly_once, "p50"), "ms", 20),
        Figure("commit to consumer of one partition, exactly once, p99", median(exactly_once, "p99"), "ms"),
        Figure("exactly once, p99, A/A", _spread(exactly_once, "p99"), "x"),
        Figure(f"the outbox at {LOAD} rows/s for {LOADED} s, largest", max(sizes) / 1e6, "MB"),
        at_most("the same, second half / first half", max(sizes[half:]) / max(sizes[:half]), "x", 1.5),
    ]
    keep(
        "outbox", figures, {"sizes": sizes, "many": many, "one": one, "at-least-once": at_least_once, "exactly-once": exactly_once}
    )
    return figures


def median(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def _spread(runs: list[dict[str, float]], name: str) -> float:
    return max(run[name] for run in runs) / min(run[name] for run in runs)


class Rig:
    """A database server and a broker, with an outbox and a topic of its own for each run; reader mark for delivery barrier."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker) -> None:
        self._folder, self._server, self._broker = folder, server, broker

    def drained(self, delivery: str, keys: int, rows: int = ROWS) -> dict[str, float]:
        """A backlog, and half as many rows before it to warm up, until the consumer has the last record."""
        warm, backlog = rows // 2, rows + rows // 2
        with self._outbox(delivery) as (folder, dsn, topic), psycopg.connect(dsn, autocommit=True) as database:
            database.execute("checkpoint")  # so that pages are whole in the WAL before it is measured
            WRITERS[delivery](database, topic, ((number, number % keys) for number in range(backlog)))
            before, consuming = wal(database), Consuming(self._broker.servers, topic, backlog, THRIFTY)
            with penstock_run(folder) as tree:
                wait_until(lambda: has_claimed(folder), 180)
                cpu = self._cpu(database, tree)
                arrivals = consuming.arrivals()
                cpu = self._cpu(database, tree) - cpu
                wait_until(lambda: not database.execute("select exists (select from outbox)").fetchall()[0][0], 60, every=0.2)
            written = wal(database) - before
        seconds = arrivals[-1][1] - arrivals[warm - 1][1]
        return {"rate": rows / seconds, "wal": written / backlog, "cpu": cpu * 1e6 / backlog}

    def late(self, delivery: str) -> dict[str, float]:
        """Single commits at an even pace, each with its time; to one partition."""
        with self._outbox(delivery, partitions=1) as (folder, dsn, topic), psycopg.connect(dsn, autocommit=True) as database:
            consuming = Consuming(self._broker.servers, topic, RATE * (WARM + SECONDS))
            with penstock_run(folder):
                wait_until(lambda: has_claimed(folder), 180)
                committed = _paced(database, topic, SINGLY[delivery])
                arrivals = consuming.arrivals()
        late = [(at - committed[number]) * 1000 for number, at in arrivals if number >= RATE * WARM]
        return {"p50": quantile(late, 0.5), "p99": quantile(late, 0.99), "rows": len(late)}

    def loaded(self) -> list[int]:
        """The size of an outbox with its indexes, second by second, while it is written and read."""
        sizes: list[int] = []
        with (
            self._outbox("exactly-once") as (folder, dsn, topic),
            psycopg.connect(dsn, autocommit=True) as database,
            penstock_run(folder),
        ):
            wait_until(lambda: has_claimed(folder), 180)
            began = time.time()
            for turn in range(LOADED * LOAD // PIECE):
                stash_numbers(database, topic, ((number, number) for number in range(PIECE)))
                time.sleep(max(0.0, began + turn * PIECE / LOAD - time.time()))
                if turn % (LOAD // PIECE) == 0:
                    sizes += [row[0] for row in database.execute("select pg_total_relation_size('outbox')")]
        return sizes

    @contextmanager
    def _outbox(self, delivery: str, partitions: int = 4) -> Iterator[tuple[Path, str, str]]:
        dsn, topic, is_marked = self._server.create_database(), self._broker.create(partitions=partitions), delivery == "barrier"
        databases.create(dsn, "outbox") if is_marked else init(dsn, Names("outbox"))
        (folder := self._folder / topic).mkdir()
        sink = f"{{type: kafka, delivery: {delivery}, config: {{bootstrap.servers: '{self._broker.servers}'}}}}"
        source = f"{{type: outbox, database: '{dsn}', reader: {'mark' if is_marked else 'snapshot'}}}"
        (folder / "pipeline.yaml").write_text(f"name: {topic}\nsource: {source}\nsink: {sink}\n")
        yield folder, dsn, topic
        self._server.drop_database(dsn)

    def _cpu(self, database: psycopg.Connection[Any], tree: Tree) -> float:
        """Of the pipeline, the broker and the database, also of sessions that have ended."""
        postmaster = psutil.Process(database.info.backend_pid).parent()
        assert postmaster
        ended = sum(postmaster.cpu_times()[2:4])
        others = [Tree(process).cpu_seconds() for process in (postmaster, psutil.Process(self._broker.pid))]
        return tree.cpu_seconds() + sum(others) + ended


def _paced(database: psycopg.Connection[Any], topic: str, sql: bytes) -> list[float]:
    """When each was committed; by the shortest way that there is, since it takes what we measure from."""
    committed: list[float] = []
    server = database.pgconn
    server.prepare(b"message", sql)
    began = time.time()
    for number in range(RATE * (WARM + SECONDS)):
        done = server.exec_prepared(b"message", [topic.encode(), b"%d" % (number % KEYS), _value(number)])
        assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, done.error_message
        committed.append(time.time())
        if (ahead := began + len(committed) / RATE - time.time()) > 0:
            time.sleep(ahead)
    return committed


_OURS = b"insert into outbox (topic, key, value) values ($1, $2, $3)"
_GOHARVESTS = (
    b"insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
    b" values (now(), $1, $2, $3, '{}', '{}')"
)
SINGLY = {"exactly-once": _OURS, "at-least-once": _OURS, "barrier": _GOHARVESTS}


def stash_numbers(database: psycopg.Connection[Any], topic: str, numbers: Numbers) -> None:
    """Messages as `penstock.outbox` writes them."""
    stash_many(database, ((topic, str(key), _value(number)) for number, key in numbers))


def insert_numbers(database: psycopg.Connection[Any], topic: str, numbers: Numbers) -> None:
    """The same in the layout of goharvest."""
    stash_many(database, ((topic, str(key), _value(number).decode()) for number, key in numbers), layout="goharvest")


WRITERS = {"exactly-once": stash_numbers, "at-least-once": stash_numbers, "barrier": insert_numbers}


def _value(number: int) -> bytes:
    return b"%010d" % number + b"." * 290


def wal(database: psycopg.Connection[Any]) -> int:
    """Bytes that were ever written ahead."""
    return int(database.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchall()[0][0])
