"""From a commit in SQLite to a receiver over HTTP: lateness at 1 000 commits/s, and what a change costs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rig import Figure, at_most, has_claimed, keep, penstock_run, quantile, row, shop, wait_until
from penstock.testing.receiver import ReceiverProcess

RATE, WARM, SECONDS = 1000, 10, 20


def measure() -> list[Figure]:
    """Two equal runs: the spread between them is the A/A."""
    runs = [run(), run()]
    best = min(runs, key=lambda run: run["p50"])
    figures = [
        at_most("commit to receiver, p50", best["p50"], "ms", 8),
        at_most("commit to receiver, p99", min(run["p99"] for run in runs), "ms", 60),
        Figure("commit to receiver, p50, A/A", max(run["p50"] for run in runs) / best["p50"], "x"),
        Figure("CPU of all processes for a change", best["cpu_us"], "us"),
    ]
    keep("path", figures, runs)
    return figures


def run(warm: int = WARM, seconds: int = SECONDS, addition: str = "", **environment: str) -> dict[str, float]:
    """One run, with more in its pipeline file and its environment."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests") as receiver:
            database = shop(folder, f"{{type: webhook, url: '{receiver.url}'}}")
            with (folder / "pipeline.yaml").open("a") as pipeline:
                pipeline.write(addition)
            with penstock_run(folder, **environment) as tree:
                wait_until(lambda: has_claimed(folder), 60)
                committed: dict[int, float] = {}
                _write(database, committed, range(1, RATE * warm + 1))
                cpu = tree.cpu_seconds()
                _write(database, committed, range(RATE * warm + 1, RATE * (warm + seconds) + 1))
                cpu = tree.cpu_seconds() - cpu
                last = RATE * (warm + seconds)
                wait_until(lambda: (found := receiver.requests) and found[-1].positions()[-1] >= last, 30, every=0.5)
            late = [
                (request.at - committed[change["key"]["id"]]) * 1000
                for request in receiver.requests
                for change in request.changes()
                if change["key"]["id"] > RATE * warm
            ]
    return {"p50": quantile(late, 0.5), "p99": quantile(late, 0.99), "changes": len(late), "cpu_us": cpu / (RATE * seconds) * 1e6}


def _write(database, committed: dict[int, float], numbers: range) -> None:
    began = time.time()
    for done, number in enumerate(numbers, 1):
        database.execute("insert into orders values (?,?,?,?,?,?,?)", row(number))
        committed[number] = time.time()
        if (ahead := began + done / RATE - time.time()) > 0:
            time.sleep(ahead)
