"""Making `format("penstock")` known to a Spark session, of ours or of anybody."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.errors import AnalysisException

from penstock.spark.source import PenstockSource


def register(spark: Any) -> None:
    """Register the data source; a second time does no harm."""
    if hasattr(spark, "_jsparkSession"):  # not so over Spark Connect
        make_active(spark)
        _choose_python(spark.sparkContext)
    try:
        spark.dataSource.register(PenstockSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def make_active(spark: Any) -> None:
    """Spark looks data sources up in the session that is active in the calling thread, and threads are born without one."""
    type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _choose_python(context: Any) -> None:
    """Workers on this machine run the Python that has Penstock, unless somebody has chosen one; Spark would take `python3`."""
    is_chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
