"""The transform as Spark SQL. Marks pass whatever it says."""

from __future__ import annotations

from typing import Any

from penstock.errors import TransformInvalid
from penstock.pipeline import Transform

_DOCUMENTS = ("key", "before", "after")


def apply(changes: Any, transform: Transform) -> Any:
    """The stream with the transform laid over it; conditions see documents as VARIANT, sinks get the original text."""
    if transform.where is None:
        return changes
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.functions import col, expr, try_parse_json

    hidden = changes.withColumnsRenamed({name: f"_{name}" for name in _DOCUMENTS})
    seen = hidden.withColumns({name: try_parse_json(col(f"_{name}")) for name in _DOCUMENTS})
    try:
        kept = seen.where((col("op") == "resolved") | expr(transform.where))
    except (ParseException, AnalysisException) as error:
        first = str(error).strip().splitlines()[0]
        raise TransformInvalid(
            f"transform.where: {first}",
            "write a condition in Spark SQL over position, op, table, key, before, after, at, old_row_id, new_row_id and error",
        ) from error
    return kept.select([col(f"_{name}").alias(name) if name in _DOCUMENTS else col(name) for name in changes.columns])
