"""This tree beside another revision of it, BASE: latency, and throughput at the receiver. `make bench BASE=v0.1.0` runs it."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from bench.rig import Figure, keep
from bench.saturation import run
from bench.sides import AA, SHIPPED, Deed, Side, figure, in_turns
from bench.trust import p50

BASE = os.environ.get("PENSTOCK_BENCH_BASE", "")
DEEDS: Mapping[str, Deed] = {
    "p50": p50,
    "seconds, batches of 100": lambda side: 1 / run(150_000, 100, **side.environment),
    "seconds, one change a request": lambda side: 1 / run(10_000, 1, **side.environment),
}


def measure() -> list[Figure]:
    """Ratios of seconds, this tree / BASE; both sides capture with the triggers of this tree."""
    with _tree(BASE) as source:
        others = {AA: SHIPPED, f"this tree / {BASE}": Side(environment={"PYTHONPATH": str(source)})}
        raw = {f"{name}, {what}": in_turns(deed, other) for what, deed in DEEDS.items() for name, other in others.items()}
    figures = [figure(name, pairs, 1.05) for name, pairs in raw.items()]
    keep("revision", figures, raw)
    return figures


@contextmanager
def _tree(revision: str) -> Iterator[Path]:
    """The package of a revision."""
    packed = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
        yield Path(folder) / "src"
