"""A backlog of a million updates, before and after, through Spark into nothing; and how much memory that takes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rig import Figure, Tree, at_least, at_most, keep, penstock_run, shop, wait_until
from penstock.config import load

CHANGES, ROWS = 1_000_000, 100_000


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fill(folder)
        samples = drained(folder)
    memory = [sample[2] for sample in samples]
    half = len(memory) // 2
    figures = [
        at_least("drain of 1 000 000 changes", rate(samples), "changes/s", 60_000),
        Figure("memory of all processes, most", max(memory), "MB"),
        at_most("memory, second half / first half", max(memory[half:]) / max(memory[:half]), "x", 1.25),
    ]
    keep("drain", figures, samples)
    return figures


def fill(folder: Path) -> None:
    """A shop with a million logged changes, and a pipeline that discards them."""
    database = shop(folder, "{type: discard}", ROWS)
    for turn in range(CHANGES // ROWS):
        database.execute("update orders set quantity = quantity + 1, status = ?", (f"turn {turn}",))
    database.close()


def drained(folder: Path, **environment: str) -> list[tuple[float, int, float]]:
    """Run the pipeline of a folder until all is delivered: time, position and memory again and again."""
    with penstock_run(folder, **environment) as tree:
        return _follow(folder, tree)


def rate(samples: list[tuple[float, int, float]]) -> float:
    """Changes per second between the first sample and the last."""
    (began, first, _), (ended, last, _) = samples[0], samples[-1]
    return (last - first) / (ended - began)


def _follow(folder: Path, tree: Tree) -> list[tuple[float, int, float]]:
    pipeline = load(folder / "pipeline.yaml")
    samples: list[tuple[float, int, float]] = []

    def is_done() -> bool:
        marks = pipeline.state.pipeline_state(pipeline.name).watermarks.values()
        position = max((mark.position for mark in marks), default=0)
        if position and (not samples or time.time() - samples[-1][0] > 2 or position >= CHANGES):  # looking costs, too
            samples.append((time.time(), position, tree.memory_mb()))
        return position >= CHANGES

    wait_until(is_done, 180, every=0.1)
    return samples
