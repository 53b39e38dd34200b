"""The modes of files and folders that other users must not open."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o660, 0o2770


def is_shared(mode: int) -> bool:
    """Whether the owner shares it with a group on purpose: no usual umask permits the group to write and others nothing."""
    return mode & 0o067 == 0o060


def is_wide(mode: int) -> bool:
    """Whether users can open it whom its owner has not chosen."""
    return bool(mode & 0o077) and not is_shared(mode)


def is_foreign(found: os.stat_result) -> bool:
    """Whether this is not a folder that only this user can create and enter; `found` is the status without following links."""
    return not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or bool(found.st_mode & 0o077)


def described(found: os.stat_result) -> str:
    """The type, owner and mode of a path."""
    kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a file"
    return f"{kind} of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}"


def make_file(path: Path) -> None:
    """Create an empty file that only this user can open, unless it exists."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE))


def append_to(path: Path) -> int:
    """A descriptor that appends to a file that only this user can open; narrows the mode of an existing file of this user."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(descriptor, FILE)
    return descriptor


def make_folder(path: Path) -> None:
    """Create a folder that only this user can enter, unless it exists."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)


def share_like(descriptor: int, folder: Path) -> None:
    """Share a file of this user with the group of a shared folder; a file of root gets the owner of the folder."""
    around, found = folder.stat(), os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        return
    if is_shared(around.st_mode) and not is_shared(found.st_mode):
        os.fchmod(descriptor, SHARED_FILE)
    if os.geteuid() == 0 and around.st_uid != 0:
        os.fchown(descriptor, around.st_uid, around.st_gid)
