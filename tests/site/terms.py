"""A process that judges terms by a clock that is ahead by as many seconds as a file says: time passes without being waited for."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import ModuleType
from typing import Any

_AHEAD = os.path.join(os.environ.get("PENSTOCK_FAILPOINTS", ""), "clock.ahead")


def ahead() -> float:
    """The monotonic clock, and the seconds that were skipped."""
    try:
        with open(_AHEAD) as seconds:
            return time.monotonic() + float(seconds.read())
    except FileNotFoundError:
        return time.monotonic()


def _of(name: str) -> Any:
    def alter(module: ModuleType) -> None:
        coordinator = getattr(module, name)
        candidate = coordinator.candidate

        def skipping(self: Any, *values: Any) -> Any:
            return candidate(replace(self, clock=ahead), *values)

        coordinator.candidate = skipping

    return alter


ALTERED = {
    "penstock.coordinators.sqlite.coordinator": _of("SqliteCoordinator"),
    "penstock.coordinators.postgres.coordinator": _of("PostgresCoordinator"),
}
