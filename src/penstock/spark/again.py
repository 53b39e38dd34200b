"""Changes that a transform raised on, put through it once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from penstock.change import CHANGES, Change, to_batch
from penstock.errors import TransformInvalid
from penstock.pipeline import Pipeline
from penstock.spark.culprit import Trial
from penstock.spark.trial import engine

Again = Callable[[Change], pa.RecordBatch]
"""What `where` and `select` make of a change: one, or none. Raises TransformInvalid, with Spark's own words."""


@contextmanager
def again(pipeline: Pipeline) -> Iterator[Again]:
    """The expressions of a pipeline, in a session of Spark; once per process."""
    with engine([pipeline]) as spark:
        trial = Trial(spark, pipeline.transform)

        def put_through(change: Change) -> pa.RecordBatch:
            made = trial.result(to_batch([change]))
            if isinstance(made, str):
                raise _raised(trial, change)
            return made.select(CHANGES.names).cast(CHANGES).combine_chunks().to_batches()[0] if made.num_rows else to_batch([])

        yield put_through


def _raised(trial: Trial, change: Change) -> TransformInvalid:
    return trial.culprit(to_batch([change])).error
