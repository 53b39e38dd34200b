"""What poison costs: one row in a hundred, by chance, is refused and parked, beside the same pipeline without such rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.rig import Figure, at_least, keep, penstock_run, row, shop, wait_until
from penstock.config import load
from penstock.testing.receiver import ReceiverProcess

CHANGES, KEYS, SHARE, TURNS = 300_000, 10_000, 0.01, 3
MARK = "spoilt"
HALVES = {"poison": MARK, "statuses": (422,)}
NAMED, REST = {**HALVES, "names_poison": True}, {**HALVES, "names_poison": True, "statuses": (207,)}
FAR_CHANGES, FAR_SECONDS = 60_000, 0.005
FAR_HALVES, FAR_NAMED = {**HALVES, "slow": FAR_SECONDS}, {**NAMED, "slow": FAR_SECONDS}
AGAIN, NEW, FAR = "rows that change again", "new rows", "new rows, a receiver 5 ms away"
CHANCE = Random(7)
NONE: frozenset[int] = frozenset()
SOME = frozenset(key for key in range(1, CHANGES + 1) if CHANCE.random() < SHARE)
EVERY = frozenset(range(100, CHANGES + 1, 100))  # as many, but no batch without one
FAR_CASES = (
    (f"{FAR}, no poison", FAR_HALVES, FAR_CHANGES, NONE),
    (f"{FAR}, 1 % poison, named", FAR_NAMED, FAR_CHANGES, SOME),
    (f"{FAR}, 1 % poison, found by halves", FAR_HALVES, FAR_CHANGES, SOME),
)
NEAR_CASES = (
    (f"{AGAIN}, no poison", HALVES, KEYS, NONE),
    (f"{AGAIN}, 1 % of them poison", HALVES, KEYS, SOME),
    (f"{NEW}, no poison", HALVES, CHANGES, NONE),
    (f"{NEW}, 1 % poison, the rest is taken", REST, CHANGES, SOME),
    (f"{NEW}, 1 % poison, named", NAMED, CHANGES, SOME),
    (f"{NEW}, 1 % poison, one in every batch, named", NAMED, CHANGES, EVERY),
    (f"{NEW}, 1 % poison, found by halves", HALVES, CHANGES, SOME),
)


def measure() -> list[Figure]:
    """In turns: rows that change again and again, of which each poison is found once, and new rows."""
    raw: dict[str, list[float]] = {name: [] for name, *_ in (*FAR_CASES, *NEAR_CASES)}
    for _ in range(TURNS):
        for changes, cases in ((FAR_CHANGES, FAR_CASES), (CHANGES, NEAR_CASES)):
            for name, dials, keys, spoilt in cases:
                raw[name].append(_run(dials, changes, keys, spoilt))
    figures = [Figure(name, median(runs), "changes/s") for name, runs in raw.items()]
    figures += [_kept(raw, AGAIN, "1 % of them poison", 0.7), _kept(raw, NEW, "1 % poison, the rest is taken", 0.7)]
    figures += [_kept(raw, NEW, "1 % poison, named", 0.7), _kept(raw, NEW, "1 % poison, one in every batch, named", None)]
    figures += [_kept(raw, NEW, "1 % poison, found by halves", None)]
    figures += [_kept(raw, FAR, poison, 0.7) for poison in ("1 % poison, named", "1 % poison, found by halves")]
    keep("poison", figures, raw)
    return figures


def _kept(raw: dict[str, list[float]], rows: str, poison: str, bar: float | None) -> Figure:
    """The share that is kept: the median over the turns, since machines change their speed from one turn to the next."""
    turns = zip(raw[f"{rows}, {poison}"], raw[f"{rows}, no poison"], strict=True)
    name, share = f"{rows}, {poison} / none", median(with_it / without for with_it, without in turns)
    return Figure(name, share, "x") if bar is None else at_least(name, share, "x", bar)


def _run(dials: dict[str, Any], changes: int, keys: int, spoilt: frozenset[int]) -> float:
    """Changes a second that are taken, behind the first third: until then a JVM warms up."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ReceiverProcess(folder / "requests", **dials) as receiver:
            database = shop(folder, f"{{type: webhook, url: '{receiver.url}', retry: {{then: dead-letter}}}}")
            database.execute("begin")
            again = "on conflict (id) do update set quantity = quantity + 1"
            database.executemany(f"insert into orders values (?,?,?,?,?,?,?) {again}", _rows(changes, keys, spoilt))
            database.execute("commit")
            head = database.execute("select max(seq) from _penstock_log").fetchone()[0]
            database.close()
            with penstock_run(folder):
                pipeline = load(folder / "pipeline.yaml")
                wait_until(lambda: _position(pipeline) >= head, 600, every=0.2)
                parked = pipeline.state.pipeline_state(pipeline.name).dead
            times = [request.at for request in receiver.requests if request.is_taken for _ in request.positions()]
    assert len(times) + parked >= head
    counted = times[len(times) // 3 :]
    return len(counted) / (counted[-1] - counted[0])


def _rows(changes: int, keys: int, spoilt: frozenset[int]) -> Iterator[tuple[Any, ...]]:
    for number in range(changes):
        key = number % keys + 1
        made = list(row(key))
        made[2] = MARK if key in spoilt else "open"
        yield tuple(made)


def _position(pipeline: Any) -> int:
    marks = pipeline.state.pipeline_state(pipeline.name).watermarks.values()
    return max((mark.position for mark in marks), default=0)
