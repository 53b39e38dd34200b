"""Folders: whether one can write there, and how much."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.finding import Finding, failed, ok, warning

LEAST, ENOUGH = 100 << 20, 1 << 30
"""Bytes below which nothing can go on, and below which somebody should look."""


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def unwritable(folder: Path) -> str | None:
    """Why no file can be written there; tried with one that has no name and leaves no trace."""
    try:
        with tempfile.TemporaryFile(dir=existing(folder)) as trial:
            trial.write(b"penstock")
    except OSError as error:
        return error.strerror or str(error)
    return None


def disk(folders: Iterable[Path]) -> Iterator[Finding]:
    """The room on each disk that these are on."""
    disks = {os.stat(place).st_dev: place for place in map(existing, folders)}
    for place in disks.values():
        yield judged(place, shutil.disk_usage(place).free)


def judged(place: Path, free: int) -> Finding:
    """Whether that is room enough."""
    said, remedy = f"{shown(free)} free at {place}", "make room: a full disk stops writers, the state file and Spark"
    if free < LEAST:
        return failed("disk", said, remedy)
    return warning("disk", said, remedy) if free < ENOUGH else ok("disk", said)


def shown(size: int) -> str:
    """Bytes for people."""
    return f"{size / (1 << 30):.1f} GB" if size >= ENOUGH else f"{size / (1 << 20):.0f} MB"
