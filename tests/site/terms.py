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


def _ahead(name: str) -> Any:
    def alter(module: ModuleType) -> None:
        coordinator = getattr(module, name)
        candidate = coordinator.candidate

        def skipping(self: Any, *values: Any) -> Any:
            return candidate(replace(self, clock=ahead), *values)

        coordinator.candidate = skipping
        _often(name)(module)

    return alter


def _often(name: str) -> Any:
    def alter(module: ModuleType) -> None:
        coordinator = getattr(module, name)
        renewal = coordinator.renewal.fget
        coordinator.renewal = property(lambda self: min(renewal(self), 1.0))

    return alter


_ALL = {
    "penstock.coordinators.sqlite.coordinator": _ahead("SqliteCoordinator"),
    "penstock.coordinators.postgres.coordinator": _ahead("PostgresCoordinator"),
    "penstock.coordinators.kafka.coordinator": _often("KafkaCoordinator"),
}
ALTERED = _ALL if _FOLDER else {}  # a worker of xdist has no such folder: its tests give the coordinators clocks of their own
