"""The class archive: Spark's classes mapped instead of parsed, which halves a cold start. `training` makes it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from penstock import privacy
from penstock.spark.java import Java


def cache() -> Path:
    """Where archives and Spark's log are kept."""
    if named := os.environ.get("PENSTOCK_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def made_cache() -> Path:
    """The same, there and for this user alone; a folder that PENSTOCK_CACHE names and that is there keeps its mode."""
    folder = cache()
    privacy.make_folder(folder)
    if not os.environ.get("PENSTOCK_CACHE") and folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o077:
        folder.chmod(privacy.FOLDER)
    return folder


def path_of(java: Java, jars: Sequence[Path]) -> Path:
    """The archive that fits exactly this Java and these jars."""
    facts = [str(java.home.resolve()), java.version]
    facts += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return cache() / f"spark-{java.major}-{key}.archive"


def flags(java: Java, path: Path, *, make: bool = False) -> list[str]:
    """Java 25 has one-step caches that need no base archive (the wheel ships none); before that, dynamic archives."""
    if java.major >= 25:
        return [f"-XX:{'AOTCacheOutput' if make else 'AOTCache'}={path}"]
    return [f"-XX:{'ArchiveClassesAtExit' if make else 'SharedArchiveFile'}={path}"]
