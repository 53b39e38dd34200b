"""Checks that folders are writable and have free space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.finding import Finding, failed, ok, warning

LEAST, ENOUGH = 100 << 20, 1 << 30
"""Free bytes below which a check fails, and below which it warns."""


def existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def unwritable(folder: Path) -> str | None:
    """The reason why no file can be written to a folder, tried with a file without a name; None if one can."""
    try:
        with tempfile.TemporaryFile(dir=existing(folder)) as trial:
            trial.write(b"penstock")
    except OSError as error:
        return error.strerror or str(error)
    return None


def disk(folders: Iterable[Path]) -> Iterator[Finding]:
    """The free space on each disk of these folders."""
    disks = {os.stat(place).st_dev: place for place in map(existing, folders)}
    for place in disks.values():
        yield judged(place, shutil.disk_usage(place).free)


def judged(place: Path, free: int) -> Finding:
    """The finding about the free space of a disk."""
    said, remedy = f"{shown(free)} free at {place}", "free disk space: a full disk stops writers, the state file and Spark"
    if free < LEAST:
        return failed("disk", said, remedy)
    return warning("disk", said, remedy) if free < ENOUGH else ok("disk", said)


def shown(size: int) -> str:
    """A number of bytes, rounded."""
    return f"{size / (1 << 30):.1f} GB" if size >= ENOUGH else f"{size / (1 << 20):.0f} MB"
