"""One query: start it, see how it is, stop it, and read what its failure was."""

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

from penstock.backfill import Backfill
from penstock.batch_target import Target
from penstock.change import Lane
from penstock.coordinator import Term
from penstock.errors import EngineFailed, EngineLost, EngineMemory, PenstockError, TransformInvalid, from_text
from penstock.pipeline import Pipeline
from penstock.poison.policy import then_of
from penstock.spark.archive import cache
from penstock.spark.cipher import KEY
from penstock.spark.failing_row import stop_for
from penstock.spark.heap import heap_of, max_row
from penstock.spark.session import ROOMY, beside
from penstock.spark.task_spec import TaskSpec

DYING_SECONDS = 2.0
"""How long a JVM that no longer answers may take to be gone."""

OUT_OF_MEMORY = {3, 52}
"""How a JVM ends that lacks memory: by its own option, and where Spark noticed first."""

READY_SECONDS = 600.0
"""How long a query may take until its readers wait for a term."""

EPOCH_SECONDS = 300.0
"""How long a micro-batch stays open. Between two of them lie about 140 ms."""


class Query:
    """A pipeline at work under a term. Its progress is in the coordinator, never in Spark."""

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
        """Begin without a term, up to where nothing but that is missing; leaves off as soon as that is enough."""
        if self._is_here():
            self._begin()
            self.wait(lambda: self._spec.is_ready() or is_enough(), within=READY_SECONDS)

    def _is_here(self) -> bool:
        """Whether all workers see the files of this process."""
        return str(self._spark.sparkContext.master).startswith("local")

    def start(self, term: Term) -> None:
        """Begin under this term, or go on with it where all is prepared."""
        if self._query is not None and self.failure() is None:
            self._spec.lead(term)
        else:
            self._spec = replace(self._spec, given=term)
            self._begin()

    def _begin(self) -> None:
        """Start Spark's query. Raises TransformInvalid where Spark does not understand the transform."""
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, PySparkException

        from penstock.spark.transform import apply  # imports pyspark.sql, which the start of the JVM hides

        try:
            spark = beside(self._spark, {} if self._spec.target is None else ROOMY)
            self._spec = replace(self._spec, max_row=max_row(self._spark, self._pipeline))
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
                f"transform: {str(error).splitlines()[0]}", "use expressions that need one change alone"
            ) from error
        except (Py4JError, PySparkException, OSError) as error:
            raise self._lost(DYING_SECONDS) or _failure(str(error)) from error

    def failure(self) -> PenstockError | None:
        """What ended the query, if something has."""
        from py4j.protocol import Py4JError

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
        """Where an expression raised on a change: go on up to that change, where the reader will halt and name it."""
        from py4j.protocol import Py4JError

        if self._spec.is_stopped():
            return False
        try:
            stop = stop_for(self._spark, self._pipeline, text, self._spec.max_row)
        except (Py4JError, OSError):
            return False  # the engine is lost, or its failure has another reason
        if stop:
            self._spec = replace(self._spec, stop_before=stop)
            self._begin()
        return stop is not None

    def has_ended(self) -> bool:
        """Whether a batch has come to its end; what it delivered, only the watermark can tell."""
        from py4j.protocol import Py4JError

        try:
            is_over = self._spec.target is not None and self._query is not None and not self._query.isActive
            return is_over and self._query.exception() is None
        except (Py4JError, OSError):
            return False  # `failure` knows more

    def was_stopped_inside(self) -> bool:
        """Whether a worker met an error that no retry can mend, recorded it, and asked everyone to end."""
        return self._spec.is_stopped()

    def wait(self, done: Callable[[], bool], within: float) -> bool:
        """Until this is so, at most so many seconds; raises what the query fails with."""
        deadline = time.monotonic() + within
        while not done():
            if failure := self.failure():
                raise failure
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def ask_to_stop(self) -> None:
        """Let readers and writers end by themselves: what is under way is finished and recorded."""
        self._spec.stop()

    def stop(self) -> None:
        """End the query now."""
        from py4j.protocol import Py4JError

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
    """Whether the JVM of this session is gone, or goes within so many seconds."""
    process = spark.sparkContext._gateway.proc
    try:
        process.wait(within)
    except TimeoutExpired:
        return None
    if process.returncode in OUT_OF_MEMORY:
        return EngineMemory(f"the JVM ended because its heap of {heap_of(process.args)} was exhausted")
    return EngineLost(f"the JVM ended with {process.returncode}", "start the pipeline again: it goes on where it stopped")


def _failure(text: str) -> PenstockError:
    """What a failure's text says: an error of ours, or the first and the innermost line of Spark's."""
    if found := from_text(text):
        return found
    if "OutOfMemoryError" in text:
        return EngineMemory("the JVM has not enough memory for a row")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:") or re.match(r"\w+(Error|Exception)\b", line)]
    return EngineFailed("; ".join(dict.fromkeys([lines[0], *causes[-1:]])), f"see {cache() / 'spark.log'}")
