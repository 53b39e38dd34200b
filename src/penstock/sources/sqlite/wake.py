"""Waiting for commits: inotify on the WAL if available, otherwise short sleeps."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODIFY, _ATTRIB, _MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x2, 0x4, 0x80, 0x100, 0x400, 0x800
_FILE = _MODIFY | _ATTRIB | _DELETE_SELF | _MOVE_SELF
_FOLDER = _CREATE | _MOVED_TO


class Wake:
    """Waits for a commit by short sleeps."""

    longest = 0.005  # seconds after which the reader checks for a commit in any case

    def wait(self, seconds: float) -> bool:
        """Wait at most this time; True if the database was written meanwhile."""
        time.sleep(max(0.0, seconds))
        return False


@contextmanager
def waking(path: str) -> Iterator[Wake]:
    """The fastest way to wait on this machine; short sleeps, if it permits no further watch."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if libc else -1
    if libc is None or fd < 0:
        yield Wake()
        return
    try:
        yield _Inotify(libc, fd, path)
    finally:
        os.close(fd)


class _Inotify(Wake):
    """Watches the database, its WAL, and the folder for a new WAL."""

    def __init__(self, libc: ctypes.CDLL, fd: int, path: str) -> None:
        self._libc, self._fd, self._path = libc, fd, Path(os.path.abspath(path))
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.longest = 0.05 if self._watch() else Wake.longest

    def wait(self, seconds: float) -> bool:
        """Wait for a write."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        if self._path.name.encode() in os.read(self._fd, 65536):  # only events of the folder have names
            self._watch()
        return True

    def _watch(self) -> bool:
        wal = self._path.with_name(self._path.name + "-wal")
        wanted = ((self._path.parent, _FOLDER), (self._path, _FILE), (wal, _FILE))
        folder, database, _ = [int(self._libc.inotify_add_watch(self._fd, os.fsencode(name), mask)) for name, mask in wanted]
        return folder >= 0 and database >= 0
