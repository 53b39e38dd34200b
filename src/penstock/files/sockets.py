"""A folder for Unix sockets, with a short path: systems limit the path of a socket to about 100 bytes."""

from __future__ import annotations

import os
import tempfile

from penstock.errors import ConfigInvalid

LONGEST = 60
"""Bytes of the path: Spark adds 43 for the name of a socket, and macOS accepts 103."""

_RANDOM = 8
"""Letters that `mkdtemp` adds."""

_COMMON = ("/tmp", "/var/tmp")


def make_folder(prefix: str) -> str:
    """A new folder with a random name that only its owner can enter, in TMPDIR if its path is short. Raises ConfigInvalid."""
    most, refusals = LONGEST - len(f"/{prefix}") - _RANDOM, []
    # XDG_RUNTIME_DIR comes last: the system removes it when the user logs out, which may be during a run.
    bases = (os.environ.get("TMPDIR"), *_COMMON, os.environ.get("XDG_RUNTIME_DIR"))
    for base in dict.fromkeys(map(os.path.abspath, filter(None, bases))):  # a short link to a long path is not resolved
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
