"""The user's function between SQL and sink: imported once, and kept from altering what a change is known by."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from penstock.change import CHANGES, Change, Op, from_batch, of_values, values
from penstock.errors import TransformInvalid

Row = tuple[Any, ...]
"""A change as its fields."""

ROOM = 1000
"""The ordinals of changes that have one already are so far apart, once a function may make several of each."""

_witnessed = itemgetter(*map(CHANGES.get_field_index, ("op", "table", "at")))


class Outcome(NamedTuple):
    """What became of a run of changes, or of those before the one that `error` is about.

    `last` is the last one that went through the function; `is_rewritten` if some came out with another op, table or time.
    """

    changes: pa.RecordBatch
    last: Change | None
    is_rewritten: bool
    error: TransformInvalid | None


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the pipeline file, imported."""

    name: str
    call: Callable[[Change], Any]

    def apply(self, run: pa.RecordBatch) -> Outcome:
        """Call it with every change of a run; what tells of schemas passes by."""
        rows: list[Row] = []
        last, is_rewritten = None, False
        for change in from_batch(run):
            try:
                made = self._made(change)
            except TransformInvalid as error:
                return Outcome(of_values(rows), last, is_rewritten, error)
            rows += made
            is_rewritten = is_rewritten or any(_witnessed(row) != _witnessed(values(change)) for row in made)
            last = change
        return Outcome(of_values(rows), last, is_rewritten, None)

    def _made(self, change: Change) -> list[Row]:
        result = change if change.op == Op.SCHEMA else self._called(change)
        several = [] if result is None else result if isinstance(result, list) else [result]
        if change.ordinal is not None and len(several) >= ROOM:
            raise self._failure(change, f"returned {len(several)} changes, and of such a row there may be {ROOM - 1}")
        for one in several:
            if one is not change and (wrong := complaint(one, change)):
                raise self._failure(change, wrong)
        return numbered(several, change.ordinal)

    def _called(self, change: Change) -> Any:
        try:
            return self.call(change)
        except (Exception, SystemExit) as error:  # the border to code that is not ours
            raise self._failure(change, f"raised {type(error).__name__}: {error}{self._place(error)}") from error

    def _failure(self, change: Change, what: str) -> TransformInvalid:
        return TransformInvalid(
            f"transform.function {self.name} {what} on {described(change)}", f"correct the function; {way_on(change)}"
        )

    def _place(self, error: BaseException) -> str:
        """The innermost line of the function's own module that is on the way to the error, or else its first line there."""
        frames = traceback.extract_tb(error.__traceback__)[1:]
        file = getattr(sys.modules.get(self.name.partition(":")[0]), "__file__", None)
        own = [frame for frame in frames if frame.filename == file] or frames[:1]
        return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def described(change: Change) -> str:
    """A change as an error names it."""
    place = change.position if change.ordinal is None else f"{change.position}.{change.ordinal}"
    return f"change {place} of {change.table}, key {change.key}"


def way_on(change: Change) -> str:
    """How to go on once a person has looked at a change that no transform could be made of."""
    again = "then run the pipeline again, which goes on at this change"
    return again if change.ordinal is not None else f"{again}, or go on behind it: penstock run FILE --from {change.position}"


def numbered(several: Sequence[Change], ordinal: int | None) -> list[Row]:
    """What was made of one change, each with an ordinal where that is needed to tell them apart: 1 to n."""
    if len(several) == 1:
        return [_with_ordinal(several[0], None if ordinal is None else ordinal * ROOM)]
    return [_with_ordinal(one, (ordinal or 0) * ROOM + number) for number, one in enumerate(several, 1)]


def _with_ordinal(change: Change, ordinal: int | None) -> Row:
    return (*values(change)[:-1], ordinal)


def complaint(made: Any, change: Change) -> str | None:
    """What is wrong with something that was made of a change."""
    if not isinstance(made, Change):
        return f"returned {_kind(made)} instead of a Change, None or a list of Changes"
    for name, mine, theirs in zip(CHANGES.names, values(made), values(change), strict=True):
        is_same = mine is theirs or (type(mine) is type(theirs) and mine == theirs)
        if not is_same and not _RULES[name].allows(mine):
            return f"returned a change with {name} {_shown(mine)}: {_RULES[name].text}"
    return None


class _Rule(NamedTuple):
    text: str
    allows: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_number(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_document(value: Any) -> bool:
    try:
        return value is None or (isinstance(value, str) and isinstance(orjson.loads(value), dict))
    except orjson.JSONDecodeError:
        return False


_OPS = {Op.INSERT, Op.UPDATE, Op.DELETE, Op.REFRESH}
_SAME = _Rule("it may not change it", lambda value: False)
_DOCUMENT = _Rule("it must be None or the text of a JSON object", _is_document)
_NUMBER = _Rule("it must be None or a whole number of 64 bits", lambda value: value is None or _is_number(value))
_RULES = {
    "position": _SAME,
    "key": _SAME,
    "ordinal": _SAME,
    "op": _Rule("it must be insert, update, delete or refresh", lambda value: value in _OPS),
    "table": _Rule("it must be text", _is_text),
    "before": _DOCUMENT,
    "after": _DOCUMENT,
    "at": _Rule("it must be a whole number of microseconds", _is_number),
    "old_row_id": _NUMBER,
    "new_row_id": _NUMBER,
    "transaction": _NUMBER,
    "error": _Rule("it must be None or text", lambda value: value is None or _is_text(value)),
}


def _kind(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__}"
    return f"{type(value).__name__} {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
