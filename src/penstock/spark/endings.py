"""The ends of Python workers, which the daemon that forks them records in memory that all of them share."""

from __future__ import annotations

import mmap
import os
import signal
import time
from types import FrameType
from typing import NamedTuple

_KEPT = 64
_SECONDS = 1.0
"""The limit of the wait for the daemon to record an end."""

_memory = memoryview(mmap.mmap(-1, 8 * (1 + 3 * _KEPT))).cast("q")


class Ending(NamedTuple):
    """The exit code of a worker, or the negative number of a signal, and the time in nanoseconds since 1970."""

    code: int
    at: int


def follow() -> None:
    """Record each end, in the daemon. Spark ignores SIGCHLD, so that the system discards the exit codes of workers."""
    from pyspark import daemon

    daemon.SIG_IGN = reap  # the handler that it sets for SIGCHLD and SIGHUP


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
    """The end of a worker; None if it is unknown, as with the daemon of a user's session."""
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
