"""The users who can open a state file: it contains dead letters, which are rows of the source."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.errors import StateUnsafe
from penstock.files import privacy

JOURNALS = ("-wal", "-shm", "-journal")


def files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Those of the state file and its journals that exist."""
    for file in (path, *(Path(f"{path}{end}") for end in JOURNALS)):
        with suppress(FileNotFoundError):
            yield file, file.stat()


def close_to_others(path: Path, folder: Path) -> None:
    """Close the state file, its journals and its locks to users whom its owner did not choose. Raises StateUnsafe."""
    owner = None
    for file, found in files(path):  # the file first: SQLite gives its mode to new journals
        owner = owner or found
        if privacy.is_wide(found.st_mode):
            _change_mode(file, found, privacy.FILE)
    if owner and os.path.lexists(folder):
        _close_folder(folder, owner)


def _close_folder(folder: Path, owner: os.stat_result) -> None:
    """Give the folder the access of the file, and its owner if root has made one of both."""
    found = folder.lstat()
    is_ours = found.st_uid in (os.geteuid(), owner.st_uid, 0) or privacy.is_shared(owner.st_mode)
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        raise StateUnsafe(f"{folder} is {privacy.described(found)}", f"remove it; Penstock makes it anew: rm -r {folder}")
    if os.geteuid() == 0 and found.st_uid != owner.st_uid:
        os.chown(folder, owner.st_uid, owner.st_gid, follow_symlinks=False)
    if privacy.is_shared(owner.st_mode):
        if not privacy.is_shared(found.st_mode) and os.geteuid() in (0, found.st_uid):
            os.chown(folder, -1, owner.st_gid, follow_symlinks=False)
            folder.chmod(privacy.SHARED_FOLDER)
    elif found.st_mode & 0o077:
        _change_mode(folder, found, privacy.FOLDER)


def _change_mode(path: Path, found: os.stat_result, mode: int) -> None:
    try:
        path.chmod(mode)
    except FileNotFoundError:
        return  # a journal that another process has just removed
    except OSError as error:
        fact = f"other users can open {path}, which is {privacy.described(found)}, and this user cannot close it: {error.strerror}"
        share = f", or, to share it with its group, chmod 660 {path}" if mode == privacy.FILE else ""
        raise StateUnsafe(fact, f"as its owner: chmod {mode:o} {path}{share}") from error
