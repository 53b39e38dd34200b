"""Changes that a transform raised on, put through it once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Change, to_batch
from penstock.pipeline import Pipeline
from penstock.spark.culprit import Trial
from penstock.spark.trial import engine


@contextmanager
def again(pipeline: Pipeline) -> Iterator[Callable[[Change], pa.RecordBatch]]:
    """The expressions of a pipeline, in a session of Spark; once per process."""
    with engine([pipeline]) as spark:
        yield partial(put_through, Trial(spark, pipeline.transform))


def put_through(trial: Trial, change: Change) -> pa.RecordBatch:
    """What `where` and `select` make of a change: one, or none. Raises TransformInvalid, with Spark's own words."""
    given = to_batch([change])
    made = trial.result(given)
    if isinstance(made, str):
        raise trial.culprit(given).error
    return made.select(CHANGES.names).cast(CHANGES).combine_chunks().to_batches()[0] if made.num_rows else NO_CHANGES
