"""Files and folders that other users must not open: their modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o660, 0o2770


def is_shared(mode: int) -> bool:
    """Whether its owner shares it with a group on purpose: no usual umask gives a group the right to write and others none."""
    return mode & 0o067 == 0o060


def is_wide(mode: int) -> bool:
    """Whether users can open it that its owner has not chosen."""
    return bool(mode & 0o077) and not is_shared(mode)


def is_foreign(found: os.stat_result) -> bool:
    """Whether this is no folder that only this user can have made and can enter; asked of the path itself, following no link."""
    return not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or bool(found.st_mode & 0o077)


def described(found: os.stat_result) -> str:
    """What a path is, whose, and how wide."""
    kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a file"
    return f"{kind} of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}"


def make_file(path: Path) -> None:
    """An empty file that only this user can open from its first moment on; one that is there stays as it is."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE))
    except FileExistsError:
        return


def append_to(path: Path) -> int:
    """A descriptor that appends to a file which only this user can open; what was wider, and is this user's, no longer is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(descriptor, FILE)
    return descriptor


def make_folder(path: Path) -> None:
    """A folder that only this user can enter; one that is there stays as it is."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)


def share_like(descriptor: int, folder: Path) -> None:
    """Let the group that shares the folder use a file of this user in it; one that root made belongs to the owner of the folder."""
    around, found = folder.stat(), os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        return
    if is_shared(around.st_mode) and not is_shared(found.st_mode):
        os.fchmod(descriptor, SHARED_FILE)
    if os.geteuid() == 0 and around.st_uid != 0:
        os.fchown(descriptor, around.st_uid, around.st_gid)
