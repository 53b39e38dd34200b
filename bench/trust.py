"""The cost of two defences: the witness of capture, and the authentication between the processes of Spark."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import drain, path
from bench.rig import Figure, at_most, keep

ROUNDS, WARM, SECONDS = 3, 5, 10


class Side(NamedTuple):
    """A program: what is added to its pipeline file, and to its environment."""

    addition: str = ""
    environment: Mapping[str, str] = {}


SHIPPED = Side()
OTHERS = {
    "A/A": SHIPPED,
    "witness": Side(environment={"PYTHONPATH": str(Path(__file__).parent / "unsealed")}),
    "authentication": Side('spark: {config: {spark.authenticate: "false"}}\n'),
}
"""What the shipped program is compared with."""

Deed = Callable[[Side], float]
Pairs = list[tuple[float, float]]
"""The shipped program and the other side, by round."""


def measure() -> list[Figure]:
    """Both sides in turns; a ratio is the median of the rounds."""
    with tempfile.TemporaryDirectory() as temporary:
        drain.fill(folder := Path(temporary))
        deeds: Mapping[str, Deed] = {"p50": _p50, "drain": lambda side: _drain(folder, side)}
        raw = {f"{name}, {what}": _in_turns(deed, other) for what, deed in deeds.items() for name, other in OTHERS.items()}
    figures = [_figure(name, pairs) for name, pairs in raw.items()]
    keep("trust", figures, raw)
    return figures


def _figure(name: str, pairs: Pairs) -> Figure:
    ratio, title = median(shipped / other for shipped, other in pairs), f"cost of {name}"
    return Figure(name, ratio, "x") if name.startswith("A/A") else at_most(title, ratio, "x", 1.05)


def _in_turns(deed: Deed, other: Side) -> Pairs:
    return [_pair(deed, other, is_first=bool(number % 2)) for number in range(ROUNDS)]


def _pair(deed: Deed, other: Side, *, is_first: bool) -> tuple[float, float]:
    """Milliseconds or seconds of the shipped program and of the other side, which runs first in every second round."""
    if is_first:
        without = deed(other)
        return deed(SHIPPED), without
    return deed(SHIPPED), deed(other)


def _p50(side: Side) -> float:
    return path.run(WARM, SECONDS, side.addition, **side.environment)["p50"]


def _drain(filled: Path, side: Side) -> float:
    """Seconds for the changes of a copy of this folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(shutil.copytree(filled, temporary, dirs_exist_ok=True))
        with (folder / "pipeline.yaml").open("a") as pipeline:
            pipeline.write(side.addition)
        return drain.CHANGES / drain.rate(drain.drained(folder, **side.environment))
