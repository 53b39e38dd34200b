"""What a pipeline costs while nothing happens."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rig import Figure, at_most, has_claimed, keep, penstock_run, shop, wait_until

WARM, SECONDS = 20, 30


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shop(folder, "{type: discard}").close()
        with penstock_run(folder) as tree:
            wait_until(lambda: has_claimed(folder), 60)
            time.sleep(WARM)
            halves = []
            for _ in range(2):
                before = tree.cpu_seconds()
                time.sleep(SECONDS / 2)
                halves.append((tree.cpu_seconds() - before) / (SECONDS / 2) * 100)
    figures = [
        at_most("idle, all processes", sum(halves) / 2, "% of a core", 5),
        Figure("idle, A/A", max(halves) / max(min(halves), 1e-9), "x"),
    ]
    keep("idle", figures, halves)
    return figures
