"""The transform as Spark SQL: `where`, then `select`. Marks pass whatever it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import TransformInvalid
from penstock.pipeline import Transform

_DOCUMENTS = ("key", "before", "after")
_SEEN = "position, op, table, key, before, after, at, old_row_id, new_row_id, error, transaction and ordinal"
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def apply(changes: Any, transform: Transform) -> Any:
    """The stream with the transform laid over it; expressions see documents as VARIANT, sinks get the original text."""
    if transform.where is None and transform.select is None:
        return changes
    from pyspark.sql.functions import col

    seen = visible(changes)
    kept = seen if transform.where is None else _kept(seen, transform.where)
    given = {name: col(f"_{name}") if name in _DOCUMENTS else col(name) for name in changes.columns}
    if transform.select is not None:
        given["after"] = _rebuilt(seen, transform.select)
    made = kept.select([column.alias(name) for name, column in given.items()])
    if not made._jdf.queryExecution().analyzed().deterministic():
        raise TransformInvalid(
            "transform: an expression gives another value each time, and a repeat must have the same bytes",
            "leave out rand(), uuid() and their like; `at` is the time of the commit",
        )
    return made


def visible(changes: Any) -> Any:
    """Changes as expressions see them; the original texts are beside, with `_` before their names."""
    from pyspark.sql.functions import col, try_parse_json

    hidden = changes.withColumnsRenamed({name: f"_{name}" for name in _DOCUMENTS})
    return hidden.withColumns({name: try_parse_json(col(f"_{name}")) for name in _DOCUMENTS})


def _kept(seen: Any, where: str) -> Any:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.functions import col, expr

    try:
        return seen.where((col("op") == "resolved") | expr(where))
    except (ParseException, AnalysisException) as error:
        raise _misunderstood("where", "a condition", error) from error


def _rebuilt(seen: Any, select: Mapping[str, str]) -> Any:
    """A new `after` where there is one; what tells of schemas is no row of the table, and stays."""
    from pyspark.sql.functions import col, struct, to_json, when

    fields = [_field(seen, name, expression).alias(name) for name, expression in select.items()]
    is_row = col("_after").isNotNull() & ~col("op").isin("schema", "resolved")
    return when(is_row, to_json(struct(*fields), _JSON)).otherwise(col("_after"))


def _field(seen: Any, name: str, expression: str) -> Any:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.functions import expr, struct, to_json

    try:
        column = expr(expression)
        seen.select("position", to_json(struct(column.alias(name)), _JSON))
    except (ParseException, AnalysisException) as error:
        raise _misunderstood(f"select.{name}", "an expression", error) from error
    return column


def _misunderstood(key: str, what: str, error: Exception) -> TransformInvalid:
    first = str(error).strip().splitlines()[0]
    return TransformInvalid(f"transform.{key}: {first}", f"write {what} in Spark SQL over {_SEEN}; docs/transform.md has examples")
