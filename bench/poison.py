"""What poison costs: one change in a hundred is refused and parked, beside the same pipeline whose receiver takes everything."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.rig import Figure, at_least, keep, penstock_run, row, shop, wait_until
from penstock.config import load
from penstock.testing.receiver import ReceiverProcess

CHANGES, KEYS, EVERY = 100_000, 10_000, 100
MARK = "spoilt"
PLAIN, NAMED = {"poison": ""}, {"poison": MARK, "statuses": (422,), "names_poison": True}
UNNAMED = {"poison": MARK, "statuses": (422,)}


def measure() -> list[Figure]:
    """Each twice, the better counts: no poison, rows that change again and again, and new rows, of which each poison is found."""
    raw: dict[str, list[float]] = {}
    for _ in range(2):
        for name, dials, keys in (
            ("no poison", PLAIN, KEYS),
            ("1 % of rows", UNNAMED, KEYS),
            ("new rows, named", NAMED, CHANGES),
            ("new rows, found by halves", UNNAMED, CHANGES),
        ):
            raw.setdefault(name, []).append(_run(dials, keys))
    best = {name: max(runs) for name, runs in raw.items()}
    plain = best["no poison"]
    figures = [Figure(name, value, "changes/s") for name, value in best.items()]
    figures.append(Figure("no poison, A/A", plain / min(raw["no poison"]), "x"))
    figures.append(at_least("1 % of rows / no poison", best["1 % of rows"] / plain, "x", 0.7))
    figures.append(at_least("new rows, named / no poison", best["new rows, named"] / plain, "x", 0.7))
    figures.append(Figure("new rows, by halves / no poison", best["new rows, found by halves"] / plain, "x"))
    keep("poison", figures, raw)
    return figures


def _run(dials: dict[str, Any], keys: int) -> float:
    """Changes a second, delivered or parked, behind the first fifth of them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests", **dials) as receiver:
            database = shop(folder, f"{{type: webhook, url: '{receiver.url}', retry: {{then: dead-letter}}}}")
            database.execute("begin")
            again = "on conflict (id) do update set quantity = quantity + 1"
            database.executemany(f"insert into orders values (?,?,?,?,?,?,?) {again}", _rows(keys))
            database.execute("commit")
            head = database.execute("select max(seq) from _penstock_log").fetchone()[0]
            database.close()
            with penstock_run(folder):
                pipeline = load(folder / "pipeline.yaml")
                wait_until(lambda: _position(pipeline) >= head, 600, every=0.2)
                parked = pipeline.state.standing(pipeline.name).dead
            times = [request.at for request in receiver.requests if request.is_taken for _ in request.positions()]
    assert len(times) + parked >= head
    counted = times[len(times) // 5 :]
    return len(counted) / (counted[-1] - counted[0])


def _rows(keys: int) -> Iterator[tuple[Any, ...]]:
    for number in range(CHANGES):
        key = number % keys + 1
        made = list(row(key))
        made[2] = MARK if key % EVERY == 0 else "open"
        yield tuple(made)


def _position(pipeline: Any) -> int:
    marks = pipeline.state.standing(pipeline.name).watermarks.values()
    return max((mark.position for mark in marks), default=0)
