"""A process that judges terms by a clock that is ahead by as many seconds as a file says: time passes without being waited for.

It renews a term every second, as with a term of 5 s, so that it notices a lost one as soon as that.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import ModuleType
from typing import Any

_FOLDER = os.environ.get("PENSTOCK_FAILPOINTS", "")
_AHEAD = os.path.join(_FOLDER, "clock.ahead")


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


def _often(module: ModuleType) -> None:
    renewal = module.renewal
    module.renewal = lambda coordinator: min(renewal(coordinator), 1.0)  # type: ignore[attr-defined]


_ALL = {
    "penstock.running.leadership": _often,
    "penstock.coordinators.sqlite.coordinator": _of("SqliteCoordinator"),
    "penstock.coordinators.postgres.coordinator": _of("PostgresCoordinator"),
}
ALTERED = _ALL if _FOLDER else {}  # a worker of xdist has no such folder: its tests give the coordinators clocks of their own
