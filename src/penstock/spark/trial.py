"""Sessions for checks and redrive: Spark starts and runs a query, and accepts the transforms or applies one to dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError

from penstock.change import NO_CHANGES, Change, described, to_batch
from penstock.errors import EngineFailed
from penstock.pipeline import Pipeline, Transform
from penstock.spark.engine import common_settings, lane_count
from penstock.spark.failing_row import Trial
from penstock.spark.query import DYING_SECONDS, engine_lost
from penstock.spark.rows import DDL, SHOWN, hidden
from penstock.spark.session import close_session, open_session
from penstock.spark.warmup import warm
from penstock.spark.workplace import workplace


@contextmanager
def engine(pipelines: Sequence[Pipeline]) -> Iterator[Any]:
    """A session with the settings of `penstock run` for these pipelines, after a warm-up; once per process."""
    with workplace() as folder:
        spark = open_session(max(1, lane_count(pipelines)), common_settings(pipelines), folder)
        try:
            warm(spark, folder)
            yield spark
        finally:
            close_session(spark)


def understand(spark: Any, transform: Transform) -> None:
    """Parse the expressions. Raises TransformInvalid."""
    from penstock.spark.transform import apply

    apply(spark.createDataFrame([], DDL), transform)


@contextmanager
def again(pipeline: Pipeline) -> Iterator[Callable[[Change], pa.RecordBatch]]:
    """The expressions of a pipeline as a function of a change, in a Spark session; once per process."""
    with engine([pipeline]) as spark:
        yield partial(put_through, Trial(spark, pipeline.transform))


def put_through(trial: Trial, change: Change) -> pa.RecordBatch:
    """The result of `where` and `select` for a change: one change, or none. Raises TransformInvalid with the message of Spark."""
    given = to_batch([change])
    try:
        made = trial.result(given)
        if isinstance(made, str):
            raise trial.failing_row(given).error
    except (Py4JError, OSError) as error:
        raise engine_lost(trial.spark, DYING_SECONDS) or EngineFailed(f"Spark failed on {described(change)}: {error}") from error
    return hidden(made.select(SHOWN.names).cast(SHOWN).combine_chunks().to_batches()[0]) if made.num_rows else NO_CHANGES
