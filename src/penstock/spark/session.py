"""The Spark session, its settings, and its task slots."""

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
from penstock.pipeline import SparkSettings
from penstock.spark import jvm, register
from penstock.spark.archive import cache
from penstock.spark.cipher import KEY, made_key
from penstock.spark.heap import heap_settings
from penstock.spark.rows import FLUSH_BYTES, ROOMY_BYTES

TRIES = 4
"""The tries of a task before the query fails."""

_SETTINGS = {
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.authenticate": "true",  # a local master, YARN and Kubernetes create a secret for each session
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
    "spark.network.timeout": "1d",  # the executor is this process, which a pause does not end
}

_ON_A_CLUSTER = {
    "spark.network.crypto.enabled": "true",  # Spark authenticates in another way with a master or a worker without it
}

ROOMY = {
    "spark.sql.execution.pandas.udf.buffer.size": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ROOMY_BYTES),
}
"""Larger buffers, for queries with more throughput and more latency."""


def master_for(slots: int, asked: str | None) -> str:
    """The given master, if it has enough slots, or a local one."""
    if asked is None:
        return f"local[{max(slots, os.cpu_count() or 1)},{TRIES}]"  # more than lanes: ranges of a snapshot are read in parallel
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?", asked)
    if local:
        here = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        if here < slots:
            raise EngineSlots(
                f"the pipelines need {slots} task slots, one for each lane, and {asked} has {here}",
                f'set spark.master to "local[{slots},{TRIES}]", or remove it',
            )
    return asked


def _refuse_without_secret(master: str, settings: Mapping[str, str]) -> None:
    """Raise ConfigInvalid without the secret of a standalone cluster; elsewhere Spark creates one for each session."""
    has_one = "spark.authenticate.secret" in settings or {"SPARK_HOME", "SPARK_CONF_DIR", "_SPARK_AUTH_SECRET"} & os.environ.keys()
    if master.startswith("spark://") and settings["spark.authenticate"].lower() == "true" and not has_one:
        raise ConfigInvalid(
            f"spark.master is {master}, and spark.config.spark.authenticate.secret is missing",
            'set it to the secret of the cluster, such as "${SPARK_SECRET}"; '
            'on a network where every user is trusted, set spark.authenticate to "false"',
        )


def open_session(
    slots: int, asked: SparkSettings | None = None, folder: str | None = None, archive: Sequence[str] | None = None
) -> Any:
    """Start Spark, with its files and sockets in this folder. The session ends with this process."""
    asked = asked or SparkSettings()
    master = master_for(slots, asked.master)
    settings = {**_SETTINGS, "spark.master": master, **heap_settings(asked.memory, is_local=master.startswith("local"))}
    if master.startswith("local"):
        settings |= _ON_THIS_MACHINE
        settings |= {"spark.python.unix.domain.socket.dir": folder, "spark.local.dir": folder} if folder else {}
    else:
        os.environ[KEY] = made_key()
        settings |= {**_ON_A_CLUSTER, f"spark.executorEnv.{KEY}": os.environ[KEY]}
    settings |= asked.config
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
        server.handle_error = lambda *_: None  # it prints a traceback if the JVM ends first
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True  # they print errors with the stack of Java
    try:
        spark = SparkSession.builder.config(map=settings).getOrCreate()
    except Py4JJavaError as error:
        raise _not_started(master, str(error.java_exception)) from error
    spark.sparkContext.environment.pop(KEY, None)  # workers inherit it, and pyspark copies its environment into each task
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, heard)  # undo the handler of Spark
    require_slots(spark, slots)
    register(spark)
    return spark


def _not_started(master: str, said: str) -> EngineFailed:
    why = "the master did not accept the application" if "stopped SparkContext" in said else said.partition("\n")[0]
    remedy = f"check that spark.master can be reached, and that spark.config is right for it; {cache() / 'spark.log'} has more"
    return EngineFailed(f"Spark did not start with the master {master}: {why}", remedy)


def require_slots(spark: Any, slots: int) -> None:
    """Raise EngineSlots if the session has fewer slots."""
    if (offered := spark.sparkContext.defaultParallelism) < slots:
        master = spark.sparkContext.master
        raise EngineSlots(f"the pipelines need {slots} task slots, and {master} offers {offered}", f"give it {slots} slots or more")


def close_session(spark: Any, within: float | None = None) -> int:
    """Stop Spark, and wait for the end of its JVM, at most `within` seconds; returns its exit code."""
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    if process.poll() is None:
        spark.stop()
    assert process.stdin
    process.stdin.close()
    return process.wait(within)


def beside(spark: Any, settings: Mapping[str, str]) -> Any:
    """A session for one query, with these settings except those that the user set.

    Each query writes to a HashMap of Spark as it starts, which the queries of a session share. Two writes at once may damage it,
    after which every task fails with OptionalDataException.
    """
    made = spark.newSession()
    for key, value in settings.items():
        if spark.conf.get(key) == _SETTINGS[key]:
            made.conf.set(key, value)
    register(made)
    return made
