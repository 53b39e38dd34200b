"""The rows of a change: two changes that share a row must be delivered in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from penstock.change import Change, Op, key_text

Row = tuple[str, str | None]
"""A table and the text of a key, the same for equal keys; None for the key stands for all rows of the table."""

# One field with a value that JSON writes in one way only: such a key is its own text.
_OWN_TEXT = r'^\{"[^"\\]*":(0|-?[1-9][0-9]{0,17}|"[^"\\\x00-\x1f]*")\}$'

_OF_ONE_ROW = frozenset((Op.INSERT, Op.DELETE, Op.REFRESH))
_OF_ROWS_TOLD = _OF_ONE_ROW | {Op.UPDATE}
_WHOLE = 1 << 31  # longer than any key

_TELLING = ("op", "table", "key", "before", "facts")


def rows_of(changes: pa.RecordBatch) -> list[tuple[Row, ...]]:
    """The rows of each change: one, two if an update changes the key, or all of a table."""
    if keys := plain_keys(changes):
        return [(row,) for row in zip(changes.column("table").to_pylist(), keys, strict=True)]
    return [_rows(*values) for values in zip(*(changes.column(name).to_pylist() for name in _TELLING), strict=True)]


def rows_at(changes: pa.RecordBatch, some: Iterable[int], keys: Sequence[str]) -> list[tuple[Row, ...]]:
    """The rows of some changes of a batch with plain keys."""
    tables = changes.column("table")
    return [((tables[index].as_py(), keys[index]),) for index in some]


def plain_keys(changes: pa.RecordBatch) -> list[str] | None:
    """The keys of changes that have one row each and keys that are their own texts; None if one of them does not."""
    import pyarrow.compute as pc

    ops, keys, befores = (changes.column(name) for name in ("op", "key", "before"))
    if pa.types.is_binary(keys.type):  # of messages
        return list(map(key_text, keys.to_pylist()))
    if not pc.all(pc.match_substring_regex(keys, _OWN_TEXT), skip_nulls=False).as_py():
        return None
    told = set(ops.unique().to_pylist())
    is_plain = told <= _OF_ONE_ROW or (told <= _OF_ROWS_TOLD and _keep_keys(keys, befores, pc.equal(ops, Op.UPDATE.value)))
    return keys.to_pylist() if is_plain else None


def _keep_keys(keys: pa.Array, befores: pa.Array, where: pa.Array) -> bool:
    """Whether these updates certainly do not change their keys."""
    import pyarrow.compute as pc

    starts = pc.binary_replace_slice(keys.filter(where), -1, _WHOLE, ",")
    return all(map(str.startswith, pc.fill_null(befores.filter(where), "").to_pylist(), starts.to_pylist()))


def bound_by(held: Collection[Row]) -> Callable[[Iterable[Row]], bool]:
    """A test whether rows include one of `held`, or one of a table that `held` has whole."""
    wholes = {table for table, key in held if key is None}
    return lambda rows: any(row in held or row[0] in wholes for row in rows)


def touching(held: Collection[Row]) -> Callable[[Iterable[Row]], bool]:
    """A test whether rows share one with `held`, where a whole table on either side stands for all of its rows."""
    is_bound, tables = bound_by(held), {table for table, _ in held}
    return lambda rows: is_bound(rows) or any(key is None and table in tables for table, key in rows)


def rows_of_change(change: Change) -> tuple[Row, ...]:
    """The rows of one change."""
    if not isinstance(change.key, str):
        return ((change.table, change.key_text),)
    assert not isinstance(change.before, bytes)
    return _rows(change.op, change.table, change.key, change.before, change.facts)


def _rows(op: str, table: str, key: str, before: str | None, facts: str | None) -> tuple[Row, ...]:
    if op == Op.SCHEMA:  # a renamed table also has its old name
        was = orjson.loads(before or "{}").get("table", table)
        return ((table, None),) if was == table else ((table, None), (was, None))
    new = orjson.loads(key)
    if op != Op.UPDATE or (before and before.startswith(f"{key[:-1]},")):  # true for most images: no parsing
        return ((table, _text(new)),)
    old = _old_key(new, orjson.loads(before or "{}"), facts)
    if old is None:
        return ((table, None),)
    return ((table, _text(new)),) if old == new else ((table, _text(new)), (table, _text(old)))


def _old_key(new: Mapping[str, Any], before: Mapping[str, Any], facts: str | None) -> Mapping[str, Any] | None:
    """The key of a row before an update; None if it is unknown."""
    if new.keys() <= before.keys():
        return {name: before[name] for name in new}
    old: Mapping[str, Any] | None = orjson.loads(facts or "{}").get("old_key")
    return old


def _text(key: Mapping[str, Any]) -> str:
    return orjson.dumps(key, option=orjson.OPT_SORT_KEYS).decode()
