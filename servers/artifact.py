"""Programs for tests that come as Maven artifacts: fetched once by Spark's own package resolution, kept in the cache."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from penstock.errors import EngineFailed
from penstock.spark.archive import cache
from penstock.spark.java import find_jars, find_java, module_flags


def kept(name: str, package: str, unpack: Callable[[Path, Path], None]) -> Path:
    """The folder of this name in the cache; `unpack` makes it of the folder of jars that this package needs."""
    folder = cache() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            ivy = folder.parent / f"{name}.ivy"
            unpack(_fetched(package, ivy), folder)
            shutil.rmtree(ivy, ignore_errors=True)
    return folder


def _fetched(package: str, ivy: Path) -> Path:
    java = find_java()
    command = [str(java.program), "-cp", ":".join(map(str, find_jars())), *module_flags(java.major), "-XX:TieredStopAtLevel=1"]
    command += ["org.apache.spark.deploy.SparkSubmit", "--conf", f"spark.jars.ivy={ivy}", "--packages", package]
    command += ["--class", "org.apache.spark.deploy.SparkSubmit", "spark-internal", "--version"]  # a class that does nothing
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any((ivy / "jars").glob("*.jar")):
        raise EngineFailed(f"the jars of {package} were not found: {(done.stdout + done.stderr)[-1500:]}")
    return ivy / "jars"
