"""The checks of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from penstock.files.room import disk, unwritable
from penstock.finding import Check, Finding, failed, ok, warning
from penstock.spark import archive
from penstock.spark.heap import default_heap, machine_memory
from penstock.spark.java import find_jars, find_java
from penstock.text.size import MIB

_PATIENCE = 600.0
_NEEDED = "pyspark, pyarrow, penstock.spark.reader, penstock.spark.writer"
_TRIAL = f"import json, sys, {_NEEDED}; print(json.dumps([*sys.version_info[:2], pyspark.__version__]))"


def checks() -> Mapping[str, Check]:
    """All checks of the machine, by name."""
    return {
        "memory": memory,
        "java": java,
        "spark": spark,
        "python workers": workers,
        "class archive": class_archive,
        "cache folder": cache_folder,
        "disk": lambda: disk([archive.cache(), Path(tempfile.gettempdir())]),
    }


def memory() -> Iterator[Finding]:
    """The default size of the heap."""
    heap = default_heap()
    yield ok("memory", f"{machine_memory() // MIB} MiB; by default the JVM has {heap // MIB} MiB of heap (spark.memory)")


def java() -> Iterator[Finding]:
    """The Java that is used, and whether it starts."""
    found = find_java()
    ended = subprocess.run([found.program, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    said = f"Java {found.version} at {found.home}"
    if ended.returncode:
        words = " ".join(ended.stderr.split())[:200]
        yield failed("java", f"{said} does not start (exit code {ended.returncode}): {words}", "install another Java 17 or later")
    else:
        yield ok("java", said)


def spark() -> Iterator[Finding]:
    """The installed pyspark."""
    jars = find_jars()
    yield ok("spark", f"pyspark {version('pyspark')} with {len(jars)} jars at {jars[0].parent}")


def workers() -> Iterator[Finding]:
    """Whether the Python of workers fits this program."""
    program = os.environ.get("PYSPARK_PYTHON") or sys.executable
    try:
        ended = subprocess.run([program, "-c", _TRIAL], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except OSError as error:
        yield failed("python workers", f"{program} cannot be run: {error.strerror}", _NAME_ANOTHER)
        return
    mine = [*sys.version_info[:2], version("pyspark")]
    yield judged_workers(program, mine, ended.stdout if ended.returncode == 0 else None, ended.stderr)


_NAME_ANOTHER = "set PYSPARK_PYTHON to a Python that has Penstock installed, or unset it"


def judged_workers(program: str, mine: list[object], answer: str | None, noise: str) -> Finding:
    """Whether the answer of the Python of workers fits this one."""
    if answer is None:
        last = (noise.strip().splitlines() or ["no output"])[-1]
        return failed("python workers", f"{program} cannot import what workers need: {last}", _NAME_ANOTHER)
    theirs = json.loads(answer)
    if theirs != mine:
        return failed("python workers", f"{program} is {_shown(theirs)}, this program {_shown(mine)}", _NAME_ANOTHER)
    return ok("python workers", f"{program}, {_shown(theirs)}")


def _shown(versions: list[object]) -> str:
    major, minor, spark = versions
    return f"Python {major}.{minor} with pyspark {spark}"


def class_archive() -> Iterator[Finding]:
    """Whether the class archive exists, with which Spark starts faster."""
    path = archive.path_of(find_java(), find_jars())
    remedy = "run a pipeline for a few minutes, or: python -m penstock.spark.training"
    if path.exists():
        yield ok("class archive", str(path))
    elif others := [*path.parent.glob("spark-*.archive")]:
        yield warning("class archive", f"{others[0]} is for another Java or pyspark: starts take twice as long", remedy)
    else:
        yield warning("class archive", f"none in {path.parent}: starts take twice as long", remedy)


def cache_folder() -> Iterator[Finding]:
    """Whether the folder of the class archive and of the log of Spark is writable."""
    folder = archive.cache()
    if why := unwritable(folder):
        yield failed("cache folder", f"{folder} cannot be written: {why}", "set PENSTOCK_CACHE to a writable folder")
    else:
        yield ok("cache folder", str(folder))
