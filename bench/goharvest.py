"""The way of goharvest, one record of a key at a time from marked rows; and its windows beside ours, on one backlog."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from bench.outbox import KEYS, ROWS, RUNS, Rig, insert_numbers, median, stash_numbers, wal
from bench.rig import Figure, at_least, at_most, keep
from bench.warmth import steady_broker
from penstock.change import from_batch
from penstock.following import follow
from penstock.source import ANONYMOUS, Stamp
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import LANE, OutboxSource
from servers.postgres import PostgresServer

HOT, SEED = 20_000, 20_000
"""Rows, where a row takes long."""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary, PostgresServer() as server:
        windows = {name: [_windows(server, *case) for _ in range(RUNS)] for name, case in WINDOWS.items()}
        with steady_broker(Path(temporary, "kafka")) as broker:
            place = Rig(Path(temporary), server, broker)
            many = [place.drained("barrier", KEYS) for _ in range(RUNS)]
            hot = [place.drained("barrier", 1, HOT) for _ in range(RUNS)]
            late = [place.late("barrier") for _ in range(RUNS)]
    ours, marks, seed = (windows[name] for name in WINDOWS)
    figures = [
        at_least("barrier: drain of 200 000, 10 000 keys", median(many, "rate"), "rows/s", 20_000),
        at_least("barrier: drain of 20 000, one key", median(hot, "rate"), "rows/s", 1_500),
        at_most("barrier: commit to consumer at 1 000/s, p50", median(late, "p50"), "ms", 8),
        Figure("barrier: commit to consumer at 1 000/s, p99", median(late, "p99"), "ms"),
        *(Figure(f"{name}: reading and purging", median(found, "rate"), "rows/s") for name, found in windows.items()),
        *(Figure(f"{name}: WAL for a row", median(found, "wal"), "bytes") for name, found in windows.items()),
        at_least("windows / marks of 2 000, rows/s", median(ours, "rate") / median(marks, "rate"), "x", 1.5),
        at_most("windows / marks of 2 000, WAL", median(ours, "wal") / median(marks, "wal"), "x", 0.5),
        Figure("windows / goharvest's defaults, rows/s", median(ours, "rate") / median(seed, "rate"), "x"),
    ]
    keep("goharvest", figures, {"many": many, "hot": hot, "late": late, **windows})
    return figures


def _windows(server: PostgresServer, fill: Callable[..., None], rows: int, drain: Callable[[str], int]) -> dict[str, float]:
    """All of a backlog read and purged, with nothing behind it."""
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as database:
        fill(dsn, database, rows)
        database.execute("checkpoint")
        before, began = wal(database), time.perf_counter()
        assert drain(dsn) == rows
        seconds = time.perf_counter() - began
        [(left,)] = database.execute("select count(*) from outbox").fetchall()
        assert left == 0
        written = wal(database) - before
    server.drop_database(dsn)
    return {"rate": rows / seconds, "wal": written / rows}


def _stash(dsn: str, database: psycopg.Connection[Any], rows: int) -> None:
    init(dsn, Names("outbox"))
    stash_numbers(database, "t", ((number, number % KEYS) for number in range(rows)))


def _insert(dsn: str, database: psycopg.Connection[Any], rows: int) -> None:
    databases.create(dsn, "outbox")
    insert_numbers(database, "t", ((number, number % KEYS) for number in range(rows)))


def _by_windows(dsn: str) -> int:
    source, found = OutboxSource(database=dsn), 0
    cursor = source.begin(LANE, "beginning")
    source.retention.register("bench", LANE, cursor)
    for window in follow(source, LANE, cursor, ANONYMOUS):
        found += window.changes.num_rows
        cursor = window.upto or cursor
        if window.idle and not window.changes.num_rows:
            while source.retention.settle("bench", LANE, cursor).pruned:
                continue
            return found
        source.retention.settle("bench", LANE, cursor)
    return found


def _by_marks(dsn: str, records: int = 2000, purged: int = 2000) -> int:
    source, stamp, found = MarkSource(database=dsn, mark_query_records=records), Stamp(1, 1), 0
    lease = source.row_lease.open(stamp)
    for window in follow(source, LANE, source.begin(LANE, "beginning"), stamp):
        rows = list(map(lease.name, from_batch(window.changes)))
        for at in range(0, len(rows), purged):
            lease.purge(rows[at : at + purged])
        found += len(rows)
        if window.idle and not rows:
            break
    lease.close()
    return found


def _by_seed(dsn: str) -> int:
    return _by_marks(dsn, records=100, purged=1)


WINDOWS = {
    "windows": (_stash, ROWS, _by_windows),
    "marks of 2 000, purged together": (_insert, ROWS, _by_marks),
    "goharvest's defaults, marks of 100, purged one by one": (_insert, SEED, _by_seed),
}
