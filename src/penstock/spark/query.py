"""One query: its start, its state, its stop and its failure."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.errors import EngineFailed, EngineLost, EngineMemory, PenstockError, TransformInvalid, from_text
from penstock.pipeline import Pipeline
from penstock.poison.policy import then_of
from penstock.progress.backfill import Backfill
from penstock.progress.batch_target import Target, covers
from penstock.spark.archive import cache
from penstock.spark.cipher import KEY
from penstock.spark.failing_row import stop_for
from penstock.spark.heap import heap_of, max_row
from penstock.spark.session import ROOMY, beside
from penstock.spark.task_spec import TaskSpec

DYING_SECONDS = 2.0
"""The limit of the wait for the end of a JVM that does not answer."""

OUT_OF_MEMORY = {3, 52}
"""The exit codes of a JVM without memory: of its own option, and of Spark."""

READY_SECONDS = 600.0
"""The limit of the preparation of a query, and of a warm-up."""

EPOCH_SECONDS = 300.0
"""The length of a live epoch. Between two epochs pass about 140 ms."""


class Query:
    """The query of a pipeline. Its progress is in the coordinator, never in Spark."""

    def __init__(
        self,
        spark: Any,
        pipeline: Pipeline,
        folder: str,
        target: Target | Backfill | None = None,
        lanes: Collection[Lane] | None = None,
    ) -> None:
        self._spark, self._pipeline = spark, pipeline
        self._checkpoint = Path(tempfile.mkdtemp(prefix=f"{pipeline.name}.", dir=folder))
        self._spec = TaskSpec(pipeline, None, folder, self._checkpoint.name, EPOCH_SECONDS, target, lanes=lanes)
        self._query: Any = None
        self._spares = then_of(pipeline.sink.retry) != "halt"

    def prepare(self, is_enough: Callable[[], bool]) -> None:
        """Start without a term, up to the point at which the term is needed; returns early once `is_enough`."""
        if self._is_here():
            self._begin()
            self.wait(lambda: self._spec.is_ready() or is_enough())

    def _is_here(self) -> bool:
        """Whether all workers run on this host and see its files."""
        return str(self._spark.sparkContext.master).startswith("local")

    def start(self, term: Term) -> None:
        """Start under a term, or give the term to the prepared query."""
        if self._query is not None and self.failure() is None:
            self._spec.lead(term)
        else:
            self._spec = replace(self._spec, given=term)
            self._begin()

    def _begin(self) -> None:
        """Start the query of Spark. Raises TransformInvalid if Spark rejects the transform."""
        from pyspark.errors import AnalysisException, PySparkException

        from penstock.spark.transform import apply  # imports pyspark.sql, which the start of the JVM hides

        try:
            spark = beside(self._spark, {} if self._spec.target is None else ROOMY)
            self._spec = replace(self._spec, max_row=max_row(self._spark, self._pipeline), lanes=self._lanes())
            spec = self._spec.store() if self._is_here() else self._spec.encrypt(os.environ[KEY])
            changes = spark.readStream.format("penstock").option("spec", spec).load()
            writing = (
                apply(changes, self._pipeline.transform, spares=self._spares).writeStream.format("penstock").option("spec", spec)
            )
            writing = writing.option("checkpointLocation", str(self._checkpoint)).queryName(self._pipeline.name)
            trigger: dict[str, Any] = {"processingTime": "0 seconds"} if self._spec.target is None else {"availableNow": True}
            self._query = writing.trigger(**trigger).start()
        except AnalysisException as error:
            raise TransformInvalid(
                f"transform: {str(error).splitlines()[0]}", "use expressions that read a single change"
            ) from error
        except (Py4JError, PySparkException, OSError) as error:
            raise self._lost(DYING_SECONDS) or _failure(str(error)) from error

    def _lanes(self) -> Collection[Lane] | None:
        """The lanes that a query reads; with a target, those that have not reached it."""
        target, pipeline = self._spec.target, self._pipeline
        if target is None or self._query is not None:  # a query that starts again repeats the epoch in its checkpoint
            return self._spec.lanes
        if isinstance(target, Backfill):
            return target.ranges
        marks = pipeline.state.pipeline_state(pipeline.name).watermarks
        return [lane for lane, end in target.items() if lane in marks and not covers(pipeline.source, marks[lane].cursor, end)]

    def failure(self) -> PenstockError | None:
        """The error that ended the query; None if there is none."""
        try:
            if self._query is None or self._query.isActive:
                return None
            ended = self._query.exception()
        except (Py4JError, OSError) as error:
            return self._lost(DYING_SECONDS) or _failure(str(error))
        if ended is None and self._spec.target is not None:
            return self._lost()
        text = str(ended) if ended else "the query ended by itself"
        try:
            return None if self._goes_on(text) else self._lost() or _failure(text)
        except PenstockError as error:
            return error

    def _goes_on(self, text: str) -> bool:
        """After an expression raised on a change: restart up to that change, at which the reader halts with its error."""
        if self._spec.is_stopped():
            return False
        try:
            stop = stop_for(self._spark, self._spec, text)
        except (Py4JError, OSError):
            return False  # the engine is lost, or its failure has another reason
        if stop:
            self._spec = replace(self._spec, stops=[*(one for one in self._spec.stops if one.lane != stop.lane), stop])
            self._begin()
        return stop is not None

    def has_ended(self) -> bool:
        """Whether the query of a batch has ended without an error; only the watermark shows its progress."""
        try:
            is_over = self._spec.target is not None and self._query is not None and not self._query.isActive
            return is_over and self._query.exception() is None
        except (Py4JError, OSError):
            return False  # `failure` returns the error

    def was_stopped_inside(self) -> bool:
        """Whether a worker recorded an error that needs an operator, and ended the query."""
        return self._spec.is_stopped()

    def wait(self, done: Callable[[], bool], within: float = READY_SECONDS) -> bool:
        """Wait at most `within` seconds until `done`, and return whether it is. Raises the failure of the query."""
        deadline = time.monotonic() + within
        while not done():
            if failure := self.failure():
                raise failure
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def ask_to_stop(self) -> None:
        """Ask readers and writers to finish and record the changes under way, and end."""
        self._spec.stop()

    def stop(self) -> None:
        """End the query."""
        self._spec.stop()
        try:
            if self._query is not None:
                self._query.stop()
        except (Py4JError, OSError) as error:
            if not self._lost(DYING_SECONDS):
                raise EngineFailed(f"the query of {self._pipeline.name} did not stop: {error}") from error
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._spec.discard()

    def _lost(self, within: float = 0.0) -> EngineLost | None:
        return engine_lost(self._spark, within)


def engine_lost(spark: Any, within: float = 0.0) -> EngineLost | None:
    """The error of the JVM of this session if it has ended, or ends within these seconds."""
    process = spark.sparkContext._gateway.proc
    try:
        process.wait(within)
    except TimeoutExpired:
        return None
    if process.returncode in OUT_OF_MEMORY:
        return EngineMemory(f"the JVM ended because its heap of {heap_of(process.args)} was exhausted")
    return EngineLost(
        f"the JVM ended with exit code {process.returncode}", "start the pipeline again: it continues where it stopped"
    )


def _failure(text: str) -> PenstockError:
    """The error in the text of a failure: one of Penstock, or the first and the innermost line of Spark's error."""
    if found := from_text(text):
        return found
    if "OutOfMemoryError" in text:
        return EngineMemory("the JVM does not have enough memory for a row")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:") or re.match(r"\w+(Error|Exception)\b", line)]
    return EngineFailed("; ".join(dict.fromkeys([lines[0], *causes[-1:]])), f"see {cache() / 'spark.log'}")
