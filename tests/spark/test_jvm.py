"""The JVM of a process that ends while the JVM starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deadline import until
from program import is_dead

STARTING = "import sys; from penstock.spark import jvm; jvm.start({'spark.master': 'local[1]'}, folder=sys.argv[1])"


def java(parent: psutil.Process) -> psutil.Process | None:
    """The JVM that this process has started; a child that is no JVM yet does not count."""
    return next((one for one in parent.children() if one.name() == "java"), None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_java_ends_with_a_process_that_ends_while_java_starts(tmp_path: Path, number: signal.Signals) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    run.mkdir()
    env = {**os.environ, "TMPDIR": str(run), "PENSTOCK_CACHE": str(cache)}
    with subprocess.Popen([sys.executable, "-c", STARTING, run], env=env, stderr=subprocess.DEVNULL) as process:
        found = until(lambda: java(psutil.Process(process.pid)))
        process.send_signal(number)
    shutil.rmtree(run)  # as the next process does with the folder of one that was killed
    until(lambda: is_dead(found))
    assert number == signal.SIGKILL or not list(cache.glob("start-*"))
