"""Expressions for the redrive of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from penstock.change import NO_CHANGES, Change, described, to_batch
from penstock.errors import EngineFailed
from penstock.pipeline import Pipeline
from penstock.spark.failing_row import Trial
from penstock.spark.query import DYING_SECONDS, engine_lost
from penstock.spark.rows import SHOWN, hidden
from penstock.spark.trial import engine


@contextmanager
def again(pipeline: Pipeline) -> Iterator[Callable[[Change], pa.RecordBatch]]:
    """The expressions of a pipeline as a function of a change, in a Spark session; once per process."""
    with engine([pipeline]) as spark:
        yield partial(put_through, Trial(spark, pipeline.transform))


def put_through(trial: Trial, change: Change) -> pa.RecordBatch:
    """The result of `where` and `select` for a change: one change, or none. Raises TransformInvalid with the message of Spark."""
    from py4j.protocol import Py4JError

    given = to_batch([change])
    try:
        made = trial.result(given)
        if isinstance(made, str):
            raise trial.failing_row(given).error
    except (Py4JError, OSError) as error:
        raise engine_lost(trial.spark, DYING_SECONDS) or EngineFailed(f"Spark failed on {described(change)}: {error}") from error
    return hidden(made.select(SHOWN.names).cast(SHOWN).combine_chunks().to_batches()[0]) if made.num_rows else NO_CHANGES
