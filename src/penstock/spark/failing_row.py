"""The change on which an expression raised: the driver finds it after a query failed with an error of SQL."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.change import Change, Lane, Op, described, from_batch, to_batch
from penstock.errors import TransformInvalid
from penstock.following import follow
from penstock.message import documents
from penstock.pipeline import Transform
from penstock.progress.backfill import Backfill
from penstock.progress.batch_target import covers
from penstock.source import ANONYMOUS, Span, Window, undelivered
from penstock.spark.outsize import PIECE_BYTES, Outsize, cut
from penstock.spark.rows import rows
from penstock.spark.stop_before import StopBefore, is_same
from penstock.spark.task_spec import TaskSpec
from penstock.transform.function import way_on

ROWS = 10_000
"""Changes that are tried at once."""

_RAISED = re.compile(r"SQLSTATE: (2[12]|39|P0)")
"""The states of expressions that raise on a value; failures of workers have other states."""

_WORDS = re.compile(r"\[[A-Z][A-Z0-9_.]+\].*?(?= SQLSTATE|$)", re.MULTILINE)
"""The message of an error of Spark, without its state and stack."""

_FORMS = {
    "INVALID_VARIANT_CAST": "try_variant_get(after, '$.field', 'type') for after:field::type",
    "CAST": "try_cast(x as type) for cast(x as type) and x::type",
    "DIVIDE_BY_ZERO": "try_divide(a, b) for a / b",
    "REMAINDER_BY_ZERO": "try_mod(a, b) for a % b",
    "ARITHMETIC_OVERFLOW": "try_add(a, b), try_subtract(a, b) or try_multiply(a, b)",
    "INVALID_ARRAY_INDEX": "get(array, index) for array[index]",
    "MALFORMED_RECORD_IN_PARSING": "try_parse_json(x) for parse_json(x)",
    "CANNOT_PARSE": "try_to_timestamp(x) for to_timestamp(x)",
}
_ANY = Change(0, Op.INSERT, "", "{}", "{}", "{}")


def stop_for(spark: Any, spec: TaskSpec, text: str) -> StopBefore | None:
    """A stop before a change that made a query fail with this text; None if the cause is no change, or only known ones.

    Raises TransformInvalid if the transform raises on every change.
    """
    return find(Trial(spark, spec.pipeline.transform), spec) if _RAISED.search(text) else None


def find(trial: Trial, spec: TaskSpec) -> StopBefore | None:
    """A stop before the first undelivered change of a lane on which the transform raises, other than the stops of the query.

    The search ends at a change above `max_row`, where the reader halts.
    """
    for lane, batches in _waiting(spec):
        for waiting in chain.from_iterable(cut(changes, spec.max_row) for changes in batches):
            if isinstance(waiting, Outsize):
                return None
            if trial.failure(waiting):
                stop = trial.failing_row(waiting)._replace(lane=lane)
                if any(known.lane == lane and is_same(known.change, stop.change) for known in spec.stops):
                    break  # another lane failed before the reader of this one came to its stop
                return stop
    if trial.failure(to_batch([_ANY])):
        raise trial.failing_row(to_batch([_ANY])).error
    return None


@dataclass(frozen=True, slots=True)
class Trial:
    """The transform, applied to given changes."""

    spark: Any
    transform: Transform

    def failure(self, changes: pa.RecordBatch, transform: Transform | None = None) -> str | None:
        """The message that the transform raises on changes; None if it succeeds."""
        made = self.result(changes, transform)
        return made if isinstance(made, str) else None

    def result(self, changes: pa.RecordBatch, transform: Transform | None = None) -> pa.Table | str:
        """The result of the transform for changes, or the message that it raises."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from penstock.spark.transform import apply

        given = self.spark.createDataFrame(pa.Table.from_batches([rows(changes)]))
        try:
            return apply(given, transform or self.transform).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            found = _WORDS.search(str(error))
            return found[0].strip() if found else str(error).partition("\n")[0]

    def failing_row(self, changes: pa.RecordBatch) -> StopBefore:
        """A stop before the first of the changes on which the transform raises, of which there is at least one."""
        index = bisect_left(range(1, changes.num_rows), True, key=lambda count: bool(self.failure(changes.slice(0, count))))
        row = changes.slice(index, 1)
        [change] = from_batch(row)
        where = "on any change" if change == _ANY else f"on {described(change)}"
        for key, expression, part in _parts(self.transform):
            if failure := self.failure(row, part):
                error = TransformInvalid(f"transform.{key}: {expression} raised {where}: {failure}", remedy(failure, change))
                return StopBefore(change, error)
        raise AssertionError("the parts of a transform raise where the whole does")


def _parts(transform: Transform) -> Iterator[tuple[str, str, Transform]]:
    if transform.where is not None:
        yield "where", transform.where, Transform(where=transform.where)
    for name, expression in (transform.select or {}).items():
        yield f"select.{name}", expression, Transform(select={name: expression})


def remedy(failure: str, change: Change) -> str:
    """The remedy for an expression that raised this message."""
    form = next((form for name, form in _FORMS.items() if f"[{name}" in failure), "such as try_cast and try_variant_get")
    return f"use a form that gives NULL: {form}; {way_on(change)}"


def _waiting(spec: TaskSpec) -> Iterator[tuple[Lane, Iterator[pa.RecordBatch]]]:
    """The undelivered changes of the lanes that a query reads."""
    source, target = spec.pipeline.source, spec.target
    marks = spec.pipeline.state.pipeline_state(spec.pipeline.name).watermarks
    if isinstance(target, Backfill):
        for lane, begin in undelivered(source, target.ranges, marks).items():
            assert source.snapshot, "only a source with a snapshot has ranges"
            yield lane, _gathered(source.snapshot.rows(begin, again=True))
        return
    for lane in marks.keys() & (source.lanes() if spec.lanes is None else spec.lanes):
        after = marks[lane].cursor
        if source.row_lease:
            yield lane, map(documents, source.row_lease.leased(lane, after))
        elif target is None:
            yield lane, _gathered(follow(source, lane, after, ANONYMOUS))
        elif not covers(source, after, target[lane]):
            batches = source.read(Span(lane, after, target[lane]), ANONYMOUS)
            yield lane, _gathered(Window(changes, None, idle=False) for changes in batches)


def _gathered(windows: Iterator[Window]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for window in windows:
        held.append(documents(window.changes))
        is_last = window.idle and window.upto is not None
        if is_last or sum(map(len, held)) >= ROWS or sum(one.nbytes for one in held) >= PIECE_BYTES:
            yield pa.concat_batches(held)
            held = []
        if is_last:
            return
    if held:
        yield pa.concat_batches(held)
