"""Locks that die with their process: `flock` on small files in a folder that all processes of a machine share."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from penstock.errors import StateRefused, StateUnavailable
from penstock.files import privacy

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_WRITABLE = "make its folder writable, and free some space"
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


class Lock:
    """A file that only this process holds, until `release` or the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        _held.add(self)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)
        self.disown()

    def disown(self) -> None:
        """Close the file without removing it: in a forked child, whose copy would keep the lock of a dead parent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _disown_all() -> None:
    for lock in list(_held):
        lock.disown()


os.register_at_fork(after_in_child=_disown_all)


def seize(path: Path) -> Lock | None:
    """The lock at this path, or None at once if it is held."""
    with usable(f"use the lock file {path}", _WRITABLE):
        path.parent.mkdir(mode=privacy.FOLDER, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, privacy.FILE)
        with ExitStack() as refused:
            refused.callback(os.close, descriptor)
            privacy.share_like(descriptor, path.parent)
            if _flock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path):
                refused.pop_all()
                return Lock(path, descriptor)
    return None


def is_locked(path: Path) -> bool | None:
    """Whether a process holds the lock at this path; None if this process may not open it."""
    with usable(f"use the lock file {path}", _WRITABLE):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except PermissionError:
            return None
        try:
            return not _flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


@cache
def machine() -> str:
    """This machine since its last boot: a lock proves a life only there."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{platform.node()}/{boot}"


def reap(paths: Iterable[Path]) -> None:
    """Remove those of these files that no process holds and this process may remove."""
    for path in paths:
        with suppress(StateUnavailable):
            if lock := seize(path):
                lock.release()


def digest(text: str) -> str:
    """A short file name for any text."""
    return hashlib.blake2b(text.encode(), digest_size=9).hexdigest()


@contextmanager
def usable(attempt: str, remedy: str) -> Iterator[None]:
    """Raise the OSError of an attempt: a missing or forbidden path needs an operator, a full disk may pass."""
    try:
        yield
    except OSError as error:
        kind = StateRefused if error.errno in _REFUSED else StateUnavailable
        raise kind(f"cannot {attempt}: {error.strerror}", remedy) from error


def _flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the path still names this file: its last holder may have removed it meanwhile."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
