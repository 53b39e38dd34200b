"""What capture costs the writer: the same work with and without triggers, interleaved, best of several rounds.

python bench/capture_cost.py [--rounds 5] [--rows 20000]
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock.sources.sqlite.install import enable

SCHEMA = """create table orders(id integer primary key, customer text not null, status text not null, total real, placed_at text,
 note text, version integer not null default 0)"""
BARS = {"insert": 2.2, "update": 2.2, "delete": 2.2, "bulk insert": 3.5}
RESULTS = Path(__file__).parent / "results"


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


def measure(rows: int, with_capture: bool) -> dict[str, float]:
    """Microseconds per row of each kind of work, in a fresh database."""
    found = {}
    for work, size in ((one_by_one, rows), (in_bulk, 5 * rows)):
        with tempfile.TemporaryDirectory() as folder, closing(opened(Path(folder, "shop.db"), with_capture)) as connection:
            for name, deed in work(connection, size):
                started = time.perf_counter()
                deed()
                found[name] = (time.perf_counter() - started) / size * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    runs = [
        {name: measure(options.rows, name == "captured") for name in ("plain", "captured", "plain again")}
        for _ in range(options.rounds)
    ]
    best = {name: {work: min(run[name][work] for run in runs) for work in runs[0][name]} for name in runs[0]}
    RESULTS.mkdir(exist_ok=True)
    facts = {"sqlite": sqlite3.sqlite_version, "machine": platform.platform(), "rows": options.rows, "best": best, "runs": runs}
    (RESULTS / "capture_cost.json").write_text(json.dumps(facts, indent=1))
    show(best)


def show(best: dict[str, dict[str, float]]) -> None:
    table = Table(
        "work", "plain, us", "captured, us", "ratio", "bar", "plain / plain again", title="Cost of capture to the writer, per row"
    )
    for work, plain in best["plain"].items():
        ratio, again = best["captured"][work] / plain, best["plain again"][work] / plain
        bar = BARS.get(work)
        verdict = "" if bar is None else f"{bar} [green]met[/]" if ratio <= bar else f"{bar} [red]missed[/]"
        table.add_row(work, f"{plain:.1f}", f"{best['captured'][work]:.1f}", f"{ratio:.2f}", verdict, f"{again:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
