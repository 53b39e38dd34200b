"""The trainer of the class archive beside a run."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from deadline import until
from program import is_dead

STARTS_ONE = """
import sys
from penstock.spark.training import end, train_beside
trainer = train_beside(sys.argv[1])
print(trainer.pid, flush=True)
sys.stdin.read()
end(trainer)
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["a run that is killed", "a run that ends"])
def test_a_trainer_and_its_jvm_do_not_outlive_the_run_and_write_no_archive(tmp_path, is_killed):
    environment = {**os.environ, "PENSTOCK_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", STARTS_ONE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as run:
        trainer = psutil.Process(int(run.stdout.readline()))
        java = until(lambda: next((one for one in trainer.children() if one.name() == "java"), None))
        if is_killed:
            run.send_signal(signal.SIGKILL)
    until(lambda: is_dead(trainer) and is_dead(java))
    assert not list(tmp_path.glob("*.new"))


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
