"""What `select` and a Python function cost: a backlog drained through them, beside the same one drained without."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.rig import Figure, Tree, at_least, keep, penstock_run, shop, wait_until
from penstock.config import load

CHANGES, ROWS = 600_000, 50_000
TRANSFORM = """
transform:
  select: {id: "after:id", customer: "after:customer", total: "after:total::double"}
  function: "bench_rules:enrich"
"""
RULES = """
import orjson


def enrich(change):
    after = orjson.loads(change.after)
    after["vip"] = after["total"] > 1000
    return change.replace(after=orjson.dumps(after).decode())
"""


def measure() -> list[Figure]:
    """Without, with, without, with: each pair of equals is an A/A, and the better of each counts."""
    plain, made = [], []
    for _ in range(2):
        plain.append(_run(""))
        made.append(_run(TRANSFORM))
    figures = [*_figures("without a transform", plain), *_figures("with select and function", made)]
    ratio = max(run.rate for run in made) / max(run.rate for run in plain)
    figures.append(at_least("with select and function / without", ratio, "x", 0.5))
    keep("transform", figures, {"plain": plain, "made": made})
    return figures


class Run(NamedTuple):
    """Changes a second, and CPU of all processes for a change, behind the first third: Java has compiled what it runs by then."""

    rate: float
    cpu_us: float


def _figures(name: str, runs: list[Run]) -> list[Figure]:
    rates = [run.rate for run in runs]
    return [
        Figure(f"drain {name}", max(rates), "changes/s"),
        Figure(f"drain {name}, A/A", max(rates) / min(rates), "x"),
        Figure(f"CPU {name}", min(run.cpu_us for run in runs), "us"),
    ]


def _run(transform: str) -> Run:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        database = shop(folder, "{type: discard}", ROWS)
        (folder / "bench_rules.py").write_text(RULES)
        with (folder / "pipeline.yaml").open("a") as file:
            file.write(transform)
        for turn in range(CHANGES // ROWS):
            database.execute("update orders set quantity = quantity + 1, status = ?", (f"turn {turn}",))
        database.close()
        with penstock_run(folder) as tree:
            return _follow(folder, tree)


def _follow(folder: Path, tree: Tree) -> Run:
    pipeline = load(folder / "pipeline.yaml")

    def position() -> int:
        marks = pipeline.state.pipeline_state(pipeline.name).watermarks.values()
        return max((mark.position for mark in marks), default=0)

    def sample(least: int) -> tuple[float, int, float]:
        wait_until(lambda: position() >= least, 600, every=0.02)
        return time.time(), position(), tree.cpu_seconds()

    first, last = sample(CHANGES // 3), sample(CHANGES)
    changes = last[1] - first[1]
    return Run(changes / (last[0] - first[0]), (last[2] - first[2]) / changes * 1e6)
