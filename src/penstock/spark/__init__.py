"""The engine, and the sources for sessions of PySpark users: the only folder that imports pyspark."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register `format("penstock")` with a Spark session; repeated calls have no effect. See docs/spark.md."""
    from pyspark.errors import AnalysisException

    from penstock.spark.source import PenstockSource

    if hasattr(spark, "_jsparkSession"):  # absent in Spark Connect
        # Spark looks up data sources in the active session of the calling thread, and a new thread has none
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
        _choose_python(spark.sparkContext)
    try:
        spark.dataSource.register(PenstockSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _choose_python(context: Any) -> None:
    """Run local workers with the Python that has Penstock, unless one is configured; Spark would run `python3`."""
    is_chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
