"""From `penstock run` to the first delivered change, with the class archive and without."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rig import Figure, at_most, keep, penstock_run, row, shop, wait_until
from penstock.spark.training import train
from penstock.testing.receiver import ReceiverProcess


def measure() -> list[Figure]:
    """Medians of three; the files are in the page cache."""
    train()
    with tempfile.TemporaryDirectory() as empty:
        runs = {"archive": [_run() for _ in range(4)][1:], "none": [_run(PENSTOCK_CACHE=empty) for _ in range(3)]}
    middle = {name: sorted(seconds)[1] for name, seconds in runs.items()}
    figures = [
        at_most("cold start, with the class archive", middle["archive"], "s", 10),
        at_most("cold start, without", middle["none"], "s", 18),
    ]
    keep("coldstart", figures, runs)
    return figures


def _run(**environment: str) -> float:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests") as receiver:
            database = shop(folder, f"{{type: webhook, url: '{receiver.url}'}}")
            database.execute("insert into orders values (?,?,?,?,?,?,?)", row(1))
            began = time.time()
            with penstock_run(folder, **environment):
                first = wait_until(lambda: receiver.requests, 60)[0]
    return first.at - began
