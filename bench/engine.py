"""Live epochs against default micro-batches: the same made-up changes, the same SQL, the same counting sink, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rig import Figure, at_least, keep, quantile

RATE, SECONDS, SIZE = 10_000, 20, 300
WHERE = "table = 'synthetic' and try_variant_get(after, '$.total', 'double') >= 0"


def measure() -> list[Figure]:
    """Twice each, by turns: the spread between two equal runs is the A/A beside the A/B."""
    runs: dict[str, list[dict[str, float]]] = {"live": [], "plain": []}
    for mode in ("live", "plain", "live", "plain"):
        runs[mode].append(_run(mode))
    live, plain = ({q: min(run[q] for run in runs[mode]) for q in ("p50", "p99")} for mode in ("live", "plain"))
    figures = [
        Figure("live, p50", live["p50"], "ms"),
        Figure("live, p99", live["p99"], "ms"),
        Figure("live, p50, A/A", max(run["p50"] for run in runs["live"]) / live["p50"], "x"),
        Figure("micro-batches, p50", plain["p50"], "ms"),
        Figure("micro-batches, p99", plain["p99"], "ms"),
        Figure("micro-batches, p50, A/A", max(run["p50"] for run in runs["plain"]) / plain["p50"], "x"),
        at_least("micro-batches / live, p50", plain["p50"] / live["p50"], "x", 40),
        at_least("micro-batches / live, p99", plain["p99"] / live["p99"], "x", 20),
    ]
    keep("engine", figures, runs)
    return figures


def _run(mode: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "lateness")
        root = str(Path(__file__).parents[1])  # workers import the sink from here
        command = [sys.executable, "-m", f"bench.engine_{mode}", str(out)]
        subprocess.run(command, check=True, timeout=180, env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.DEVNULL)
        late = [value for line in out.read_text().splitlines() for value in json.loads(line)]
    warm = late[len(late) // 3 :]
    return {"p50": quantile(warm, 0.5), "p99": quantile(warm, 0.99), "changes": len(late), "at": time.time()}
