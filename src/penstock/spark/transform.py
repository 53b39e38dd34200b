"""The transform as Spark SQL: `where`, then `select`. Marks pass every condition, and so does poison if it is spared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.functions import col, expr, lit, struct, to_json, try_parse_json, when

from penstock.errors import TransformInvalid
from penstock.pipeline import Transform

_DOCUMENTS = ("key", "before", "after", "facts", "headers")
_SEEN = "position, op, table, key, before, after, at, facts, error, transaction, ordinal, headers and schema"
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

_PATTERNS = {
    "PLAN_EXPRESSION": ("an expression has a subquery, which reads tables or files", "read other data in transform.function"),
    "CURRENT_LIKE": (
        "an expression depends on the clock or the session, as now() and current_user() do, and a repeat must have the same bytes",
        "use `at`, the time of the commit",
    ),
}
"""Parts of a plan that depend on more than one change, by their names in Spark."""


def apply(changes: Any, transform: Transform, *, spares: bool = False) -> Any:
    """The transformed stream; expressions read documents as VARIANT, sinks get the original text.

    If poison is spared, a change on which an expression raises passes unchanged, and its `mark` names `where` or `select`.
    """
    if not transform.has_sql:
        return changes

    seen = visible(changes)
    given = {name: col(f"_{name}") if name in _DOCUMENTS else col(name) for name in changes.columns}
    kept = seen if transform.where is None else _kept(seen, transform.where, spares)
    if spares:
        given |= _spared(seen, transform)
    elif transform.select is not None:
        given["after"] = _rebuilt(seen, transform.select)
    made = kept.select([column.alias(name) for name, column in given.items()])
    _refuse_what_needs_more(made._jdf.queryExecution().analyzed())
    return made


def _refuse_what_needs_more(plan: Any) -> None:
    """Raise TransformInvalid if an expression depends on more than one change: on chance, a clock, Java, a file, other rows."""
    jvm = SparkSession.active().sparkContext._jvm
    if not plan.deterministic():
        raise TransformInvalid(
            "transform: an expression gives another value each time, and a repeat must have the same bytes",
            "remove rand(), uuid(), java_method() and similar functions; `at` is the time of the commit",
        )
    for pattern, (what, remedy) in _PATTERNS.items():
        if plan.containsPattern(getattr(jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()):
            raise TransformInvalid(f"transform: {what}", remedy)


def visible(changes: Any) -> Any:
    """Changes with documents as VARIANT, and the original texts in columns with `_` before their names."""
    hidden = changes.withColumnsRenamed({name: f"_{name}" for name in _DOCUMENTS})
    return hidden.withColumns({name: try_parse_json(col(f"_{name}")) for name in _DOCUMENTS})


def _kept(seen: Any, where: str, spares: bool) -> Any:
    try:
        plain = seen.where((col("op") == "resolved") | expr(where))
    except (ParseException, AnalysisException) as error:
        raise _misunderstood("where", "a condition", error) from error
    if not spares:
        return plain
    tried = _tried(expr(where))
    return seen.where((col("op") == "resolved") | tried.isNull() | tried["value"])


def _rebuilt(seen: Any, select: Mapping[str, str]) -> Any:
    """A new `after` for rows that have one; schema events stay unchanged."""
    return when(_is_row(), _built(seen, select)).otherwise(col("_after"))


def _spared(seen: Any, transform: Transform) -> dict[str, Any]:
    """A new `after` if no expression raises, otherwise a mark."""
    mark, after = when(col("op") == "resolved", col("mark")), col("_after")
    if transform.where is not None:
        is_raising = _tried(expr(transform.where)).isNull()
        mark = mark.when(is_raising, lit("where"))
    if transform.select is not None:
        tried = _tried(_built(seen, transform.select))
        mark = mark.when(_is_row() & tried.isNull(), lit("select"))
        after = when(_is_row() & tried.isNotNull(), tried["value"]).otherwise(after)
    if transform.where is not None and transform.select is not None:
        after = when(is_raising, col("_after")).otherwise(after)
    return {"after": after, "mark": mark}


def _tried(column: Any) -> Any:
    """The value of a column inside a struct, or NULL if it raises, by the expression on which `try_` functions are built."""
    jvm = SparkSession.active().sparkContext._jvm
    expressions = getattr(getattr(jvm.org.apache.spark.sql.classic, "ExpressionUtils$"), "MODULE$")
    inside = expressions.expression(struct(column.alias("value"))._jc)
    return Column(expressions.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inside)))


def _is_row() -> Any:
    return col("_after").isNotNull() & ~col("op").isin("schema", "resolved")


def _built(seen: Any, select: Mapping[str, str]) -> Any:
    return to_json(struct(*(_field(seen, name, expression).alias(name) for name, expression in select.items())), _JSON)


def _field(seen: Any, name: str, expression: str) -> Any:
    try:
        column = expr(expression)
        seen.select("position", to_json(struct(column.alias(name)), _JSON))
    except (ParseException, AnalysisException) as error:
        raise _misunderstood(f"select.{name}", "an expression", error) from error
    return column


def _misunderstood(key: str, what: str, error: Exception) -> TransformInvalid:
    first = str(error).strip().splitlines()[0]
    return TransformInvalid(f"transform.{key}: {first}", f"write {what} in Spark SQL over {_SEEN}; docs/transform.md has examples")
