"""What the measurements share: processes and what they cost, a shop to change, figures with their bars."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measured figure; `bar` is what it must keep, `is_kept` whether it did."""

    name: str
    value: float
    unit: str
    bar: str = ""
    is_kept: bool = True


def at_most(name: str, value: float, unit: str, most: float) -> Figure:
    return Figure(name, value, unit, f"<= {most:g}", value <= most)


def at_least(name: str, value: float, unit: str, least: float) -> Figure:
    return Figure(name, value, unit, f">= {least:g}", value >= least)


def keep(name: str, figures: Sequence[Figure], raw: Any) -> None:
    """Write the raw results down."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load_before": os.getloadavg()[0],
        "at": time.strftime("%FT%TZ", time.gmtime()),
    }
    facts = {"machine": machine, "figures": [asdict(figure) for figure in figures], "raw": raw}
    (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=1))


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def wait_until(condition: Callable[[], Any], within: float, every: float = 0.01) -> Any:
    deadline = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within} s")
        time.sleep(every)
    return found


class Tree:
    """A process and all that it started: what it used, and how large it is."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def members(self) -> list[psutil.Process]:
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def cpu_seconds(self) -> float:
        return sum(self._of(member, lambda m: sum(m.cpu_times()[:2])) for member in self.members())

    def memory_mb(self) -> float:
        """Proportional set size: pages that forked workers share count once."""
        return sum(self._of(member, lambda m: m.memory_full_info().pss) for member in self.members()) / 1e6

    @staticmethod
    def _of(member: psutil.Process, what: Callable[[psutil.Process], float]) -> float:
        try:
            return what(member)
        except psutil.Error:
            return 0.0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def penstock_run(folder: Path, **environment: str) -> Iterator[Tree]:
    """`penstock run` on the pipeline file of a folder."""
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", str(folder / "pipeline.yaml"), "--log-format", "json", "-v"],
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )
    tree = Tree(process)
    try:
        yield tree
        if tree.stop() != 0:
            raise RuntimeError((folder / "run.log").read_text()[-2000:])
    finally:
        process.kill()
        process.wait()


def has_claimed(folder: Path) -> bool:
    return '"LaneClaimed"' in (folder / "run.log").read_text()


COLUMNS = 7
_TABLE = "create table orders(id integer primary key, customer text, status text, total real, quantity integer, note text, at text)"


def shop(folder: Path, sink: str, rows: int = 0, step: int = 1, start: str = "beginning") -> sqlite3.Connection:
    """A captured database with a table of 7 columns and rows of about 300 bytes, and a pipeline file for it."""
    from penstock.sources.sqlite import install

    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "shop.db"
    shop = connect(database)
    shop.execute("pragma journal_mode = wal")
    shop.execute(_TABLE)
    shop.execute("begin")
    shop.executemany("insert into orders values (?,?,?,?,?,?,?)", (row(step * number) for number in range(1, rows + 1)))
    shop.execute("commit")
    install.enable(str(database))
    source = f"{{type: sqlite, database: shop.db, start: {start}}}"
    (folder / "pipeline.yaml").write_text(f"name: bench\nsource: {source}\nsink: {sink}\n")
    return shop


def connect(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("pragma synchronous = normal")
    return connection


def row(number: int) -> tuple[Any, ...]:
    return number, f"customer {number % 997}", "open", number * 1.25, number % 9, "note " * 42, "2026-01-01T00:00:00Z"
