"""The private folder of a run: sockets, signals, specs with their secrets, and files of Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.coordinators import locks
from penstock.errors import StateUnavailable
from penstock.files import privacy
from penstock.files.sockets import make_folder

PREFIX = "penstock-run-"
_ALIVE = "alive"


@contextmanager
def workplace() -> Iterator[str]:
    """A folder that only its owner can enter; the next process of this user removes that of a killed process."""
    folder = Path(make_folder(PREFIX))
    lock = locks.seize(folder / ".new")
    (folder / ".new").rename(folder / _ALIVE)  # so that other processes see only a held lock
    sweep(folder.parent)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock:
            lock.release()


def sweep(base: Path) -> None:
    """Remove the folders of this user whose processes have ended."""
    for folder in filter(_is_ours, base.glob(f"{PREFIX}*")):
        with suppress(StateUnavailable):  # a folder that stays does no harm
            if (folder / _ALIVE).exists() and (lock := locks.seize(folder / _ALIVE)):
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def _is_ours(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        return not privacy.is_foreign(folder.lstat())
    return False
