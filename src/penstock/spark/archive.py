"""The class archive: classes of Spark to map instead of parse, which halves a cold start. `training` creates it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.files import privacy
from penstock.spark.java import Java


def cache() -> Path:
    """The folder of archives and of the log of Spark."""
    if named := os.environ.get("PENSTOCK_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def made_cache() -> Path:
    """The cache folder, created for this user alone; an existing folder that PENSTOCK_CACHE names keeps its mode."""
    folder = cache()
    privacy.make_folder(folder)
    if not os.environ.get("PENSTOCK_CACHE") and folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o077:
        folder.chmod(privacy.FOLDER)
    return folder


def path_of(java: Java, jars: Sequence[Path]) -> Path:
    """The archive for exactly this Java and these jars."""
    facts = [str(java.home.resolve()), java.version]
    facts += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return cache() / f"spark-{java.major}-{key}.archive"


def flags(java: Java, path: Path, *, make: bool = False) -> list[str]:
    """The options of Java to use or create an archive: from Java 25 a cache, which needs no base archive as the wheel has none."""
    if java.major >= 25:
        return [f"-XX:{'AOTCacheOutput' if make else 'AOTCache'}={path}"]
    return [f"-XX:{'ArchiveClassesAtExit' if make else 'SharedArchiveFile'}={path}"]
