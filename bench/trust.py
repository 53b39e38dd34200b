"""The cost of two defences: the seal of capture, and the authentication between the processes of Spark."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import drain, path
from bench.rig import Figure, keep
from bench.sides import AA, SHIPPED, Deed, Side, figure, in_turns

WARM, SECONDS = 5, 10

OTHERS = {
    AA: SHIPPED,
    "cost of the seal": Side(environment={"PYTHONPATH": str(Path(__file__).parent / "unsealed")}),
    "cost of authentication": Side('spark: {config: {spark.authenticate: "false"}}\n'),
}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        drain.fill(folder := Path(temporary))
        deeds: Mapping[str, Deed] = {"p50": p50, "drain": lambda side: _drain(folder, side)}
        raw = {f"{name}, {what}": in_turns(deed, other) for what, deed in deeds.items() for name, other in OTHERS.items()}
    figures = [figure(name, pairs, 1.05) for name, pairs in raw.items()]
    keep("trust", figures, raw)
    return figures


def p50(side: Side) -> float:
    """Milliseconds from a commit to the receiver."""
    return path.run(WARM, SECONDS, side.addition, **side.environment)["p50"]


def _drain(filled: Path, side: Side) -> float:
    """Seconds for the changes of a copy of this folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(shutil.copytree(filled, temporary, dirs_exist_ok=True))
        with (folder / "pipeline.yaml").open("a") as pipeline:
            pipeline.write(side.addition)
        return drain.CHANGES / drain.rate(drain.drained(folder, **side.environment))
