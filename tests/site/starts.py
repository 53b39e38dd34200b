"""Counts the starts of Spark: one line of a file that all processes of a test run share. Before a start, a test may pause it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = "PENSTOCK_TEST_STARTS"


def _counted(module: ModuleType) -> None:
    from penstock.failpoint import reach

    start, connect = module._start, module._connect
    if hasattr(connect, "is_counted"):  # a worker of pytest-xdist is altered as a process that a test run starts, and as a test run
        return

    def starting(*values: Any, **named: Any) -> Any:
        reach("engine.starting")
        return start(*values, **named)

    def counting(*values: Any, **named: Any) -> Any:
        if file := os.environ.get(FILE):
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            with open(file, "a") as noted:
                noted.write(f"{test} {Path(sys.argv[0]).name} {' '.join(sys.argv[1:])[:60]}\n")
        return connect(*values, **named)

    counting.is_counted = True  # type: ignore[attr-defined]
    module._start, module._connect = starting, counting  # type: ignore[attr-defined]


ALTERED = {"penstock.spark.jvm": _counted}
