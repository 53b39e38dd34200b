"""How Python workers have ended: the daemon that forks them notes it in memory that it shares with all of them."""

from __future__ import annotations

import mmap
import os
import signal
import time
from types import FrameType
from typing import NamedTuple

_KEPT = 64
_SECONDS = 1.0
"""How long the daemon may take to note an end that is visible otherwise."""

_memory = memoryview(mmap.mmap(-1, 8 * (1 + 3 * _KEPT))).cast("q")


class Ending(NamedTuple):
    """The exit code of a worker, or the negative number of the signal that ended it, and when, in nanoseconds since 1970."""

    code: int
    at: int


def follow() -> None:
    """In the daemon, before it forks: note each end. Spark ignores SIGCHLD, and so the system forgets how a worker ended."""
    from pyspark import daemon

    daemon.SIG_IGN = reap  # it handles SIGCHLD with this, and SIGHUP


def reap(signum: int, frame: FrameType | None) -> None:
    """Handle SIGCHLD, and ignore any other signal."""
    while signum == signal.SIGCHLD:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _note(pid, Ending(os.waitstatus_to_exitcode(status), time.time_ns()))


def _note(pid: int, ending: Ending) -> None:
    index = 1 + 3 * (_memory[0] % _KEPT)
    _memory[index], _memory[index + 1], _memory[index + 2] = pid, *ending
    _memory[0] += 1


def ending_of(pid: int) -> Ending | None:
    """How this worker ended; None if that is not known, as where the daemon is a stranger's."""
    deadline = time.monotonic() + _SECONDS
    while (found := _noted(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _noted(pid: int) -> Ending | None:
    count = _memory[0]
    for number in range(count - 1, max(0, count - _KEPT) - 1, -1):
        index = 1 + 3 * (number % _KEPT)
        if _memory[index] == pid:
            return Ending(_memory[index + 1], _memory[index + 2])
    return None
