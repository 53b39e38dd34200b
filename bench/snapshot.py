"""A million rows that are there already, into nothing, while a writer commits 500 more each second all over the table."""

from __future__ import annotations

import random
import tempfile
import time
from itertools import count
from pathlib import Path
from threading import Event, Thread

from bench.rig import Figure, at_least, at_most, connect, keep, penstock_run, row, shop, wait_until
from penstock.config import load

ROWS, COMMITS = 1_000_000, 500


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shop(folder, "{type: discard}", ROWS, step=2, start="snapshot").close()
        stop = Event()
        writer = Thread(target=_write, args=(folder / "shop.db", stop))
        writer.start()
        with penstock_run(folder):
            samples = _follow(folder)
            stop.set()
            writer.join()
            differs = _settled(folder)
    first, last = samples[0], samples[-1]
    figures = [
        at_least("snapshot of 1 000 000 rows", (last[1] - first[1]) / (last[0] - first[0]), "rows/s", 60_000),
        Figure("commits meanwhile", samples[-1][2] / (last[0] - first[0]), "commits/s"),
        at_most("rows delivered twice or never", differs, "rows", 0),
    ]
    keep("snapshot", figures, samples)
    return figures


def _write(database: Path, stop: Event) -> None:
    """Rows between those that are there, so that every range gets some."""
    free = random.Random(7).sample(range(ROWS), ROWS // 4)
    connection, began = connect(database), time.monotonic()
    for number in count():
        if stop.wait(max(0.0, began + number / COMMITS - time.monotonic())):
            break
        connection.execute("insert into orders values (?,?,?,?,?,?,?)", row(2 * free[number] + 1))
    connection.close()


def _follow(folder: Path) -> list[tuple[float, int, int]]:
    pipeline, samples = load(folder / "pipeline.yaml"), []

    def is_done() -> bool:
        delivered = pipeline.state.pipeline_state(pipeline.name).delivered
        if delivered and (not samples or time.time() - samples[-1][0] > 0.5 or delivered >= ROWS):
            samples.append((time.time(), delivered, _rows(folder) - ROWS))
        return delivered >= ROWS

    wait_until(is_done, 180, every=0.1)
    return [(at, delivered, written - samples[0][2]) for at, delivered, written in samples]


def _settled(folder: Path) -> int:
    """By how much the number of delivered rows differs from that of the table, once nothing moves any more."""
    pipeline, rows = load(folder / "pipeline.yaml"), _rows(folder)
    [lane] = pipeline.source.lanes()
    head = pipeline.source.position(pipeline.source.head(lane))

    def has_all() -> bool:
        mark = pipeline.state.watermark(pipeline.name, lane)
        return mark is not None and mark.position >= head and not pipeline.source.snapshot.ranges(mark.cursor)

    wait_until(has_all, 60, every=0.1)
    return abs(pipeline.state.pipeline_state(pipeline.name).delivered - rows)


def _rows(folder: Path) -> int:
    connection = connect(folder / "shop.db")
    [(rows,)] = connection.execute("select count(*) from orders")
    connection.close()
    return int(rows)
