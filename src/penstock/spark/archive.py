"""The class archive: Spark's classes mapped instead of parsed, which halves a cold start.

`python -m penstock.spark.archive` makes it, once for each Java and pyspark; a run without one starts that at low priority.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from penstock.spark.java import Java, find_jars, find_java


def cache() -> Path:
    """Where archives and Spark's log are kept."""
    if named := os.environ.get("PENSTOCK_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


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


def train() -> Path | None:
    """Make the archive unless it is there; None if another trainer is at it. Only the finished file gets the final name."""
    java, jars = find_java(), find_jars()
    final = path_of(java, jars)
    final.parent.mkdir(parents=True, exist_ok=True)
    with final.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if not final.exists():
            private = final.with_suffix(".new")
            private.unlink(missing_ok=True)
            _rehearse(flags(java, private, make=True))
            private.replace(final)
    return final


def _rehearse(archive: list[str]) -> None:
    from penstock.spark.session import open_session
    from penstock.spark.warmup import warm

    spark = open_session(slots=1, archive=archive)
    warm(spark)
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()  # the JVM writes the archive on its way out
    if process.wait(300) != 0:
        raise SystemExit(f"Java ended with {process.returncode} while it wrote the class archive")


def train_beside() -> subprocess.Popen[bytes] | None:
    """Start a trainer at the lowest priority, unless the archive is there; it goes when this process goes."""
    if path_of(find_java(), find_jars()).exists():
        return None
    command = ["nice", "-n", "19", sys.executable, "-m", "penstock.spark.archive", "--with-parent"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _go_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    if "--with-parent" in sys.argv:
        Thread(target=_go_with_parent, daemon=True).start()
    sys.stdout.write(f"{train() or 'another process is making it'}\n")
