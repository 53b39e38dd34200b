"""The engine, and Penstock's sources for PySpark users: the only folder that imports pyspark."""

from __future__ import annotations

from typing import Any

__all__ = ["register"]


def register(spark: Any) -> None:
    """Teach a Spark session `format("penstock")`; a second time does no harm. See docs/spark.md."""
    from penstock.spark.registration import register as registered

    registered(spark)
