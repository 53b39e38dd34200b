"""The user's function between SQL and sink; it cannot alter the identity of a change."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import is_not
from typing import Any, NamedTuple, Protocol

import orjson
import pyarrow as pa

from penstock.change import CHANGES, Change, Op, described, from_batch, of_values, places, values
from penstock.errors import TransformInvalid
from penstock.message import document, pairs_of

Row = tuple[Any, ...]
"""The fields of a change."""

ROOM = 1000
"""The distance between ordinals after a function, which may return several changes for each change with an ordinal."""

_SCHEMA = Op.SCHEMA.value
NAMES = tuple(CHANGES.names)
_KEY, _ORDINAL = NAMES.index("key"), NAMES.index("ordinal")
WITNESSED = {"op", "table", "at"}
"""The fields, in addition to the unalterable ones, by which a source identifies a change."""


class Outcome(NamedTuple):
    """The result for a run of changes, or for those before the change of `error`.

    `last`: the last finished change. `is_rewritten`: an op, table or time was altered. `failures`: the spared changes, of which
    the last `in_row` are consecutive.
    """

    changes: pa.RecordBatch
    last: Change | None
    is_rewritten: bool
    error: TransformInvalid | None
    failures: Sequence[tuple[Change, TransformInvalid]] = ()
    in_row: int = 0


class Watch(Protocol):
    """Follows the calls of a function."""

    def enter(self, change: Change) -> None:
        """The next call receives this change. Raises TransformInvalid to prevent the call."""

    def leave(self) -> None:
        """The last call of a run has returned."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the pipeline file, imported."""

    name: str
    call: Callable[[Change], Any]

    def apply(self, run: pa.RecordBatch, spared: int = 0, in_row: int = 0, watch: Watch | None = None) -> Outcome:
        """Call it with every change of a run except schema events; spares up to `spared` consecutive failures.

        Commands need no `watch`: their user can end a call that does not return.
        """
        try:
            return self._applied(run, spared, in_row, watch)
        finally:
            if watch:
                watch.leave()

    def _applied(self, run: pa.RecordBatch, spared: int, in_row: int, watch: Watch | None) -> Outcome:
        rows: list[Row] = []
        altered: set[str] = set()
        last, error, failures = None, None, []
        for change in from_batch(run):
            try:
                if watch:
                    watch.enter(change)
                rows += self._made(change, altered)
                in_row = 0
            except TransformInvalid as found:
                if in_row >= spared:
                    error = found
                    break
                failures.append((change, found))
                in_row += 1
            last = change
        return Outcome(_together(rows), last, not altered.isdisjoint(WITNESSED), error, failures, in_row)

    def _made(self, change: Change, altered: set[str]) -> Sequence[Row]:
        """The rows that it returns for a change; adds the fields that it altered to `altered`."""
        result = change if change.op == _SCHEMA else self._called(change)
        if result is None:
            return ()
        several = result if isinstance(result, list) else (result,)
        if change.ordinal is not None and len(several) >= ROOM:
            raise self._failure(change, f"returned {len(several)} changes instead of at most {ROOM - 1} for a row of a snapshot")
        given = values(change)
        return numbered([given if one is change else self._row(one, change, given, altered) for one in several], change.ordinal)

    def _row(self, made: Any, change: Change, given: Row, altered: set[str]) -> Row:
        if not isinstance(made, Change):
            raise self._failure(change, f"returned {_kind(made)} instead of a Change, None or a list of Changes")
        row = values(made)
        for name in compress(NAMES, map(is_not, row, given)):
            if defect := complaint(name, getattr(made, name), getattr(change, name), is_message=change.is_message):
                raise self._failure(change, f"returned a change with {name} {defect}")
            altered.add(name)
        return values(_settled(made)) if change.is_message or made.headers else row

    def _called(self, change: Change) -> Any:
        try:
            return self.call(change)
        except (Exception, SystemExit) as error:  # code of the user
            raise self._failure(change, f"raised {type(error).__name__}: {error}{self._place(error)}") from error

    def _failure(self, change: Change, what: str) -> TransformInvalid:
        return TransformInvalid(
            f"transform.function {self.name} {what} on {described(change)}", f"correct the function; {way_on(change)}"
        )

    def _place(self, error: BaseException) -> str:
        """The innermost line of the function's module in the traceback, or else the outermost line of any module."""
        frames = traceback.extract_tb(error.__traceback__)[1:]
        file = getattr(sys.modules.get(self.name.partition(":")[0]), "__file__", None)
        own = [frame for frame in frames if frame.filename == file] or frames[:1]
        return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def way_on(change: Change) -> str:
    """The remedy for a change on which a transform failed."""
    again = "then run the pipeline again, which continues with this change"
    return again if change.ordinal is not None else f"{again}, or skip it: penstock run FILE --from {change.position}"


def origins(run: pa.RecordBatch, made: pa.RecordBatch) -> list[Change]:
    """For each change in `made`, the change of the run that it was made from."""
    given = {change.place: change for change in from_batch(run)}
    return [given.get((position, 0)) or given[position, ordinal // ROOM] for position, ordinal in places(made)]


def numbered(several: Sequence[Row], ordinal: int | None) -> Sequence[Row]:
    """The rows made from one change, with the ordinals 1 to n if there are several."""
    if len(several) == 1:
        return several if ordinal is None else [_placed(several[0], ordinal * ROOM)]
    return [_placed(one, (ordinal or 0) * ROOM + number) for number, one in enumerate(several, 1)]


def _placed(row: Row, ordinal: int) -> Row:
    return (*row[:_ORDINAL], ordinal, *row[_ORDINAL + 1 :])


def _settled(made: Change) -> Change:
    """A change with headers as pairs; a message with a text value becomes a document, and one without a value a `delete`."""
    made = made.replace(headers=pairs_of(made.headers))
    if isinstance(made.after, str) or isinstance(made.before, str):
        return made.replace(key=made.key_text)
    is_gone = made.after is None
    is_told = isinstance(made.key, str) or (made.op == Op.DELETE) == is_gone
    return made if is_told else made.replace(op=Op.DELETE if is_gone else Op.INSERT)


def _together(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as one batch: messages as documents, if some rows are no messages."""
    is_mixed = len({isinstance(row[_KEY], str) for row in rows}) > 1
    return of_values([values(document(Change(*row))) for row in rows] if is_mixed else rows)


def complaint(name: str, value: Any, original: Any, *, is_message: bool = False) -> str | None:
    """The defect of a field value that differs from the original one; None if it is valid."""
    is_same = type(value) is type(original) and value == original
    rule = _OF_MESSAGES.get(name, _RULES[name]) if is_message else _RULES[name]
    return None if is_same or rule.allows(value) else f"{_shown(value)}: {rule.text}"


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


def _are_headers(value: Any) -> bool:
    try:  # an iterator would be read here, and empty later
        return isinstance(value, Collection) and all(
            _is_text(name) and (said is None or isinstance(said, bytes)) for name, said in pairs_of(value)
        )
    except (TypeError, ValueError):
        return False


_OPS = {Op.INSERT, Op.UPDATE, Op.DELETE, Op.REFRESH}
_SAME = _Rule("it must not alter it", lambda value: False)
_DOCUMENT = _Rule("it must be None or the text of a JSON object", _is_document)
_NUMBER = _Rule("it must be None or a whole number of 64 bits", lambda value: value is None or _is_number(value))
_RULES = {
    "position": _SAME,
    "key": _SAME,
    "ordinal": _SAME,
    "op": _Rule("it must be insert, update, delete or refresh", lambda value: isinstance(value, str) and value in _OPS),
    "table": _Rule("it must be text", _is_text),
    "before": _DOCUMENT,
    "after": _DOCUMENT,
    "at": _Rule("it must be a whole number of microseconds", _is_number),
    "facts": _DOCUMENT,
    "headers": _Rule("it must be pairs, or a mapping, of text to bytes, text or None", _are_headers),
    "schema": _NUMBER,
    "transaction": _NUMBER,
    "error": _Rule("it must be None or text", lambda value: value is None or _is_text(value)),
}

_VALUE = _Rule("it must be None, bytes or the text of a JSON object", lambda said: isinstance(said, bytes) or _is_document(said))
_OF_MESSAGES = {"before": _VALUE, "after": _VALUE}


def _kind(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__}"
    return f"{type(value).__name__} {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
