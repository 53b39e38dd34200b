"""The trainer of the class archive beside a run."""

import os
import signal
import subprocess
import sys
import time

from deadline import until

STARTS_ONE = """
import signal, sys
from penstock.spark.training import train_beside
print(train_beside(sys.argv[1]).pid, flush=True)
signal.pause()
"""


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_trainer_does_not_outlive_the_run_it_was_started_beside(tmp_path):
    environment = {**os.environ, "PENSTOCK_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", STARTS_ONE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        trainer = int(run.stdout.readline())
        assert is_alive(trainer)
        run.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(trainer))


def test_no_trainer_is_started_where_the_archive_is_there(tmp_path, monkeypatch):
    from penstock.spark.archive import path_of
    from penstock.spark.java import find_jars, find_java
    from penstock.spark.training import train, train_beside

    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    archive = path_of(find_java(), find_jars())
    archive.touch()
    assert train_beside(str(tmp_path)) is None
    assert train() == archive


def test_archives_that_nobody_has_used_for_a_month_are_swept_away(tmp_path):
    from penstock.spark.training import UNUSED_SECONDS, sweep

    old, now = time.time() - UNUSED_SECONDS - 60, time.time()
    ages = {"spark-17-mine.archive": old, "spark-17-mine.lock": old, "spark-17-gone.archive": old, "spark-17-gone.new": old}
    ages |= {"spark-21-used.archive": now, "spark.log": old, "spark.err": old}
    for name, used_at in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (used_at, old))
    sweep(tmp_path / "spark-17-mine.archive")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ages.keys() - {"spark-17-gone.archive", "spark-17-gone.new"}
