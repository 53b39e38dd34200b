"""Sessions for checks and redrive: Spark starts, runs a query, and accepts the transforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.pipeline import Pipeline, Transform
from penstock.spark.engine import common_settings, lane_count
from penstock.spark.rows import DDL
from penstock.spark.session import close_session, open_session
from penstock.spark.warmup import warm
from penstock.spark.workplace import Workplace


@contextmanager
def engine(pipelines: Sequence[Pipeline]) -> Iterator[Any]:
    """A session with the settings of `penstock run` for these pipelines, after a warm-up; once per process."""
    settings, slots = common_settings(pipelines), max(1, lane_count(pipelines))
    with Workplace() as folder:
        spark = open_session(slots, settings.master, settings.config, memory=settings.memory, folder=folder)
        try:
            warm(spark, folder)
            yield spark
        finally:
            close_session(spark)


def understand(spark: Any, transform: Transform) -> None:
    """Parse the expressions. Raises TransformInvalid."""
    from penstock.spark.transform import apply

    apply(spark.createDataFrame([], DDL), transform)
