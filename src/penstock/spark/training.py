"""Creates the class archive: `python -m penstock.spark.training`, once for each Java and pyspark.

This is a separate process, because a JVM takes minutes to write an archive as it ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread

from penstock.files import privacy
from penstock.spark.archive import flags, made_cache, path_of
from penstock.spark.java import find_jars, find_java
from penstock.spark.session import close_session, open_session
from penstock.spark.warmup import warm
from penstock.spark.workplace import workplace

UNUSED_SECONDS = 30 * 24 * 3600.0


def train(folder: str | None = None) -> Path | None:
    """Create the archive unless it exists; None if another process creates it. Only the finished file gets the final name.

    Uses `folder`, which the caller removes, or a folder of its own.
    """
    java, jars = find_java(), find_jars()
    final = path_of(java, jars)
    made_cache()
    with os.fdopen(privacy.append_to(final.with_suffix(".lock")), "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if not final.exists():
            private = final.with_suffix(".new")
            private.unlink(missing_ok=True)
            _rehearse(flags(java, private, make=True), folder)
            private.chmod(privacy.FILE)  # Java makes it read-only
            private.replace(final)
            sweep(final)
    return final


def sweep(kept: Path) -> None:
    """Remove archives, also incomplete ones, that were not used for long: each Java and environment has its own."""
    for other in kept.parent.glob("spark-*.*"):
        if other.stem != kept.stem and time.time() - other.stat().st_atime > UNUSED_SECONDS:
            other.unlink(missing_ok=True)


def _rehearse(archive: list[str], folder: str | None) -> None:
    with nullcontext(folder) if folder else workplace() as place:
        spark = open_session(slots=1, folder=place, archive=archive)
        warm(spark, place)
        code = close_session(spark, 3600)  # the JVM writes the archive as it ends, at the lowest priority
    if code != 0:
        raise SystemExit(f"Java ended with exit code {code} while it wrote the class archive")


def train_beside(folder: str) -> subprocess.Popen[bytes] | None:
    """Start a trainer at the lowest priority, unless the archive exists; the trainer ends with this process.

    All its files are in this folder, which the caller removes, since a killed trainer cannot.
    """
    if path_of(find_java(), find_jars()).exists():
        return None
    command = ["nice", "-n", "19", sys.executable, "-m", "penstock.spark.training", "--with-parent", folder]
    env, quiet = {**os.environ, "TMPDIR": folder}, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=env, start_new_session=True)


def end(trainer: subprocess.Popen[bytes]) -> None:
    """Kill a trainer and its JVM, which otherwise writes the archive for minutes."""
    with trainer, suppress(ProcessLookupError):
        os.killpg(trainer.pid, signal.SIGKILL)


def _go_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    given = sys.argv[2] if sys.argv[1:2] == ["--with-parent"] else None
    if given:
        Thread(target=_go_with_parent, daemon=True).start()
    sys.stdout.write(f"{train(given) or 'another process creates the class archive'}\n")
