"""The Spark session: every setting of ours in one place, and how many task slots the pipelines need."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import ConfigInvalid, EngineFailed, EngineSlots
from penstock.spark import jvm, register
from penstock.spark.archive import cache
from penstock.spark.cipher import KEY, made_key
from penstock.spark.heap import heap_settings
from penstock.spark.rows import FLUSH_BYTES, ROOMY_BYTES

TRIES = 4
"""How often Spark tries a task before the query fails."""

_SETTINGS = {
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.authenticate": "true",  # a local master, YARN and Kubernetes make a secret for each session
    # buffers smaller than a flush, so that it passes through them
    "spark.buffer.size": "8192",
    "spark.sql.execution.pandas.udf.buffer.size": "8192",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(FLUSH_BYTES),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.python.task.killTimeout": "200ms",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

_ON_THIS_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.network.timeout": "1d",  # the executor is this process: it is not lost after a pause
}

_ON_A_CLUSTER = {
    "spark.network.crypto.enabled": "true",  # towards a master or a worker without it Spark authenticates as before
}

ROOMY = {
    "spark.sql.execution.pandas.udf.buffer.size": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ROOMY_BYTES),
}
"""Larger buffers, for queries that need not be quick but much."""


def master_for(slots: int, asked: str | None) -> str:
    """The master to use: the one asked for, if it is large enough, or a local one that is."""
    if asked is None:
        return f"local[{max(slots, os.cpu_count() or 1)},{TRIES}]"  # more than lanes: rows of a snapshot are read side by side
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?", asked)
    if local:
        here = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        if here < slots:
            raise EngineSlots(
                f"the pipelines need {slots} task slots, one for each lane, and {asked} has {here}",
                f'write master: "local[{slots},{TRIES}]" under spark, or leave it out',
            )
    return asked


def _refuse_without_secret(master: str, settings: Mapping[str, str]) -> None:
    """A standalone cluster has one secret, which only its administrator knows; elsewhere Spark makes one for each session."""
    has_one = "spark.authenticate.secret" in settings or {"SPARK_HOME", "SPARK_CONF_DIR", "_SPARK_AUTH_SECRET"} & os.environ.keys()
    if master.startswith("spark://") and settings["spark.authenticate"].lower() == "true" and not has_one:
        raise ConfigInvalid(
            f"spark.master is {master}, and spark.config.spark.authenticate.secret is missing",
            'give the secret of the cluster, such as "${SPARK_SECRET}"; '
            'on a network where every user is trusted, set spark.authenticate to "false"',
        )


def open_session(
    slots: int,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    memory: int | None = None,
    folder: str | None = None,
    archive: Sequence[str] | None = None,
) -> Any:
    """Start Spark, with its files and sockets in this folder. The session belongs to this process and ends with it."""
    master = master_for(slots, master)
    settings = {**_SETTINGS, "spark.master": master, **heap_settings(memory, is_local=master.startswith("local"))}
    if master.startswith("local"):
        settings |= _ON_THIS_MACHINE
        settings |= {"spark.python.unix.domain.socket.dir": folder, "spark.local.dir": folder} if folder else {}
    else:
        os.environ[KEY] = made_key()
        settings |= {**_ON_A_CLUSTER, f"spark.executorEnv.{KEY}": os.environ[KEY]}
    settings |= config or {}
    if "spark.redaction.regex" in settings:
        settings["spark.redaction.regex"] += f"|{KEY}"
    _refuse_without_secret(master, settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = jvm.start(settings, archive, folder)

    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext, accumulators
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=gateway)
    heard = signal.getsignal(signal.SIGINT)
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # it prints a traceback when the JVM goes first
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True  # they print what is raised, with Java's stack
    try:
        spark = SparkSession.builder.config(map=settings).getOrCreate()
    except Py4JJavaError as error:
        raise _not_started(master, str(error.java_exception)) from error
    spark.sparkContext.environment.pop(KEY, None)  # workers inherit it; Spark would write it into each task
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, heard)  # Spark has put one of its own there
    require_slots(spark, slots)
    register(spark)
    return spark


def _not_started(master: str, said: str) -> EngineFailed:
    why = "the master did not accept the application" if "stopped SparkContext" in said else said.partition("\n")[0]
    remedy = f"see that spark.master can be reached, and that spark.config is right for it; {cache() / 'spark.log'} has more"
    return EngineFailed(f"Spark did not start with the master {master}: {why}", remedy)


def require_slots(spark: Any, slots: int) -> None:
    """Raise EngineSlots if the session has fewer."""
    if (offered := spark.sparkContext.defaultParallelism) < slots:
        raise EngineSlots(f"the pipelines need {slots} task slots, and {spark.sparkContext.master} offers {offered}")


def close_session(spark: Any, within: float | None = None) -> int:
    """Stop Spark, and wait for the end of its JVM, at most `within` seconds; returns its exit code."""
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    if process.poll() is None:
        spark.stop()
    assert process.stdin
    process.stdin.close()
    return process.wait(within)


def beside(spark: Any, settings: Mapping[str, str]) -> Any:
    """A session for one query, with these settings where a person has not chosen them.

    Queries that share a data source share a HashMap of Spark's which each of them writes to as it starts: two at once, and its
    size is wrong for ever, so that no task of any of them can be read again (OptionalDataException).
    """
    made = spark.newSession()
    for key, value in settings.items():
        if spark.conf.get(key) == _SETTINGS[key]:
            made.conf.set(key, value)
    register(made)
    return made
