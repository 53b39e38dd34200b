"""Waiting for things to happen, with a deadline; never sleeping in the hope that they have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 900.0
"""Seconds for an event that should take one: a host may stall for minutes, and a wait ends with its event."""


def until(condition: Callable[[], T], within: float = PATIENCE, what: Callable[[], str] = str) -> T:
    """The first answer that is true. Raises TimeoutError, which tells what was waited for."""
    deadline, pause = time.monotonic() + within, 0.02
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within} s: {what() or condition}")
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # a condition may read all that has come so far
    return found
