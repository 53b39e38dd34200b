"""A folder for Unix sockets: its path is short whatever TMPDIR is, since systems take some 100 bytes for a socket's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from penstock.errors import ConfigInvalid

LONGEST = 60
"""Bytes of the folder's path: Spark names a socket in it with 43 more, and macOS takes 103; 104 with the zero behind them."""

_RANDOM = 8
"""Letters that `mkdtemp` adds."""

_COMMON = ("/tmp", "/var/tmp")


def make_folder(prefix: str) -> str:
    """A new folder with a random name that only its owner can enter: in TMPDIR if that is short. Raises ConfigInvalid."""
    most, refusals = LONGEST - len(f"/{prefix}") - _RANDOM, []
    for base in dict.fromkeys(_bases()):
        if (length := len(os.fsencode(base))) > most:
            refusals.append(f"{base} has {length} bytes")
            continue
        try:
            return tempfile.mkdtemp(prefix=prefix, dir=base)
        except OSError as error:
            refusals.append(f"{base}: {error.strerror}")
    raise ConfigInvalid(
        f"no folder for Unix sockets: {'; '.join(refusals)}",
        f"set TMPDIR to a folder that this user can write to, with a path of at most {most} bytes",
    )


def _bases() -> Iterator[str]:
    """XDG_RUNTIME_DIR comes last: the system removes it when the user logs out, and a run may outlive that."""
    for base in (os.environ.get("TMPDIR"), *_COMMON, os.environ.get("XDG_RUNTIME_DIR")):
        if base:
            yield os.path.abspath(base)  # links stay: a short one to a long folder is there on purpose
