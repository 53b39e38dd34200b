"""The seats of claims, and on this machine the locks that prove their holders alive."""

from __future__ import annotations

import os
import pwd
import secrets
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from penstock.coordinators import locks
from penstock.errors import StateUnavailable, StateUnsafe
from penstock.files import privacy

OLD_SECONDS = 60.0
TEMPORARY = Path("/tmp")
"""Neither TMPDIR nor XDG_RUNTIME_DIR: all processes of a user must find the same folder."""


def new_seat() -> str:
    """A name that no other claim has."""
    return f"{_prefix(folder())}{secrets.token_hex(8)}"


def sit(seat: str) -> locks.Lock:
    """The lock of this seat, after removal of the files of dead processes."""
    locks.reap(_old())
    held = locks.seize(_lock_of(seat))
    assert held, "the name is random"
    return held


def touch(seat: str) -> None:
    """Keep the lock from programs that remove old temporary files."""
    with suppress(OSError, StateUnavailable, StateUnsafe):
        os.utime(_lock_of(seat))


def is_alive(seat: str) -> bool | None:
    """Whether the claim in this seat lives; None where its lock is in another folder, or on another machine."""
    place = folder()
    return locks.is_locked(place / locks.digest(seat)) if seat.startswith(_prefix(place)) else None


def folder() -> Path:
    """The folder of the locks of this user. Raises StateUnsafe if others could have made it, or can enter it."""
    place = chosen(_home(), TEMPORARY)
    remedy = f"make {place.parent} a folder that this user can write to, and free some space"
    with locks.usable(f"make the folder for locks {place}", remedy):
        privacy.make_folder(place)
        found = place.lstat()
    if privacy.is_foreign(found):
        fact = f"locks must be in a folder of user {os.geteuid()} with mode 700, and {place} is {privacy.described(found)}"
        remedy = "stop all processes of this user that run pipelines, and remove it, as root if it belongs to another user"
        raise StateUnsafe(fact, f"{remedy}: rm -r {place}")
    return place


def chosen(home: Path | None, temporary: Path) -> Path:
    """The folder: in the home of the user, or in that for temporary files if there is no writable home."""
    with suppress(OSError):
        if home and home.is_absolute() and home.stat().st_uid == os.geteuid() and os.access(home, os.W_OK | os.X_OK):
            return home / ".cache" / "penstock" / "lanes"
    return temporary / f"penstock-{os.geteuid()}-lanes"


@cache
def _home() -> Path | None:
    """The home in the user database of the system; HOME may differ between processes."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return None


def _prefix(place: Path) -> str:
    """The folder by device and inode, not by name: a lock is a proof only for processes with the same folder."""
    found = place.stat()
    return f"{locks.machine()}/lanes.{found.st_dev:x}.{found.st_ino:x}/"


def _lock_of(seat: str) -> Path:
    return folder() / locks.digest(seat)


def _old() -> list[Path]:
    """Files old enough to be locked by their makers: a free one belongs to a dead process."""
    with suppress(OSError):
        return [path for path in folder().glob("*") if time.time() - path.stat().st_mtime > OLD_SECONDS]
    return []
