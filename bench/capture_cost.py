"""What capture costs the writer: the same work with and without triggers, WAL and synchronous = normal."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bench.rig import Figure, at_most, keep
from penstock.sources.sqlite.install import enable

SCHEMA = """create table orders(id integer primary key, customer text not null, status text not null, total real, placed_at text,
 note text, version integer not null default 0)"""
BARS = {"insert": 2.2, "update": 2.2, "delete": 2.2, "bulk insert": 3.5}
ROUNDS, ROWS = 5, 20_000


def order(number: int) -> tuple[object, ...]:
    return number, f"customer {number % 997}", "placed", number * 1.37, "2026-01-01T00:00:00.000Z", "x" * 200, 0


def opened(path: Path, with_capture: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("pragma journal_mode = wal; pragma synchronous = normal;" + SCHEMA)
    if with_capture:
        enable(str(path))
    return connection


def one_by_one(connection: sqlite3.Connection, rows: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every statement its own commit."""

    def each(sql: str, arguments: Callable[[int], tuple[object, ...]]) -> Callable[[], object]:
        return lambda: [connection.execute(sql, arguments(number)) for number in range(rows)]

    yield "insert", each("insert into orders values(?, ?, ?, ?, ?, ?, ?)", order)
    yield "update", each("update orders set status = 'paid', version = version + 1 where id = ?", lambda number: (number,))
    yield "delete", each("delete from orders where id = ?", lambda number: (number,))


def in_bulk(connection: sqlite3.Connection, rows: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each statement's rows in one transaction."""

    def whole(deed: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            connection.execute("begin")
            deed()
            connection.execute("commit")

        return run

    orders = [order(number) for number in range(rows)]
    yield "bulk insert", whole(lambda: connection.executemany("insert into orders values(?, ?, ?, ?, ?, ?, ?)", orders))
    yield "bulk update", whole(lambda: connection.execute("update orders set version = version + 1"))
    yield "bulk delete", whole(lambda: connection.execute("delete from orders where id >= 0"))


def measure() -> list[Figure]:
    """With triggers and without, by turns; the best of five each; plain against plain again is the A/A."""
    kinds = ("plain", "captured", "plain again")
    runs = [{kind: _time(kind == "captured") for kind in kinds} for _ in range(ROUNDS)]
    best = {kind: {work: min(run[kind][work] for run in runs) for work in runs[0][kind]} for kind in kinds}
    figures = [_figure(work, best["captured"][work] / plain) for work, plain in best["plain"].items()]
    again = [best["plain again"][work] / plain for work, plain in best["plain"].items()]
    figures.append(Figure("plain / plain again, farthest from 1", max(again, key=lambda ratio: abs(ratio - 1)), "x"))
    keep("capture_cost", figures, {"sqlite": sqlite3.sqlite_version, "microseconds_per_row": runs})
    return figures


def _figure(work: str, ratio: float) -> Figure:
    return at_most(work, ratio, "x", BARS[work]) if work in BARS else Figure(work, ratio, "x")


def _time(with_capture: bool) -> dict[str, float]:
    """Microseconds per row of each kind of work, in a fresh database."""
    found = {}
    for work, size in ((one_by_one, ROWS), (in_bulk, 5 * ROWS)):
        with tempfile.TemporaryDirectory() as folder, closing(opened(Path(folder, "shop.db"), with_capture)) as connection:
            for name, deed in work(connection, size):
                started = time.perf_counter()
                deed()
                found[name] = (time.perf_counter() - started) / size * 1e6
    return found
