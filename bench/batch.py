"""The same million changes drained live and as a batch, in turns: live begins with a batch, too, so they should be equal."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bench.drain import drained, fill, rate
from bench.rig import Figure, at_least, keep

TURNS = 4


def measure() -> list[Figure]:
    rates: dict[str, list[float]] = {"live": [], "batch": []}
    with tempfile.TemporaryDirectory() as temporary:
        fill(full := Path(temporary, "full"))
        for _ in range(TURNS):
            for mode, found in rates.items():
                found.append(_drain(full, Path(temporary, mode), mode))
    live, batch = (max(rates[mode]) for mode in ("live", "batch"))
    figures = [
        Figure("drain of 1 000 000 changes, live", live, "changes/s"),
        Figure("drain of 1 000 000 changes, batch", batch, "changes/s"),
        at_least("batch / live", batch / live, "x", 1.0),
    ]
    keep("batch", figures, rates)
    return figures


def _drain(full: Path, folder: Path, mode: str) -> float:
    shutil.copytree(full, folder)
    file = folder / "pipeline.yaml"
    file.write_text(f"{file.read_text()}mode: {mode}\n")
    try:
        return rate(drained(folder))
    finally:
        shutil.rmtree(folder)
