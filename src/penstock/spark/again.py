"""Changes that a transform raised on, put through it once more: each by itself, should it still raise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.change import CHANGES, Change, to_batch
from penstock.errors import TransformInvalid
from penstock.pipeline import Pipeline
from penstock.spark.culprit import Trial
from penstock.spark.trial import engine


def transformed(pipeline: Pipeline, changes: Sequence[Change]) -> list[pa.RecordBatch | TransformInvalid]:
    """What `where` and `select` make of each: one change, none, or an error."""
    with engine([pipeline]) as spark:
        trial = Trial(spark, pipeline.transform)
        return [_made(trial, change) for change in changes]


def _made(trial: Trial, change: Change) -> pa.RecordBatch | TransformInvalid:
    given = to_batch([change])
    made = trial.result(given)
    if isinstance(made, str):
        return trial.culprit(given).error
    return made.select(CHANGES.names).cast(CHANGES).combine_chunks().to_batches()[0] if made.num_rows else to_batch([])
