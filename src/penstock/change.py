"""A committed change, and the Arrow schema of batches of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from enum import StrEnum
from itertools import repeat
from operator import attrgetter
from typing import Any, NewType

import pyarrow as pa

from penstock.text.raw import json_of

KEY_SHOWN = 200
"""Characters of a key that an error shows."""

Place = tuple[int, int]
"""The position and ordinal of a change in its lane."""

Lane = NewType("Lane", str)
"""The name of an ordered sub-stream of a source, which one Spark task reads and delivers."""


class Op(StrEnum):
    """The kind of a change; `schema` is a change of the table, and `resolved` is a mark, not a change."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    REFRESH = "refresh"
    SCHEMA = "schema"
    RESOLVED = "resolved"


CHANGES = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("table", pa.string()),
        pa.field("key", pa.string()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("facts", pa.string()),
        pa.field("error", pa.string()),
        pa.field("transaction", pa.int64()),
        pa.field("ordinal", pa.int64()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
        pa.field("schema", pa.int64()),
    ]
)
"""The columns of a batch of changes of rows, in the order of the fields of Change."""

BYTES = ("key", "before", "after")
MESSAGES = pa.schema([field.with_type(pa.binary()) if field.name in BYTES else field for field in CHANGES])
"""The columns of a batch of messages, whose key and values are bytes instead of JSON text."""

Header = tuple[str, bytes | None]

# All columns in one call: for a few rows this takes a third of the time of a call per column.
_STRUCT, _MESSAGE_STRUCT = pa.struct(list(CHANGES)), pa.struct(list(MESSAGES))
_KEY, _AFTER = CHANGES.get_field_index("key"), CHANGES.get_field_index("after")

NO_CHANGES = pa.RecordBatch.from_pylist([], CHANGES)


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change of one row, or one message (penstock.message).

    In a row, `key`, `before` and `after` are JSON text, unchanged up to the sink. In a message, `table` is the topic, `key` and
    `after` are bytes or None, and `headers` are ordered pairs. `schema` is the schema version of a row, if its source has one.

    `facts` is a JSON object that the source interprets; the engine reads only `old_key`, the key before an update, if `before`
    does not include it. Changes of one `transaction` share its number, if the writer gave one. An `ordinal` distinguishes changes
    of one position: rows of a snapshot, and the results of a function for one change.
    """

    position: int
    op: Op
    table: str
    key: str | bytes | None
    before: str | bytes | None = None
    after: str | bytes | None = None
    at: int = 0  # microseconds since 1970, UTC
    facts: str | None = None
    error: str | None = None
    transaction: int | None = None
    ordinal: int | None = None
    headers: Sequence[Header] = ()
    schema: int | None = None

    @property
    def is_message(self) -> bool:
        """Whether it carries a message, and not a row."""
        return not (isinstance(self.key, str) or isinstance(self.after, str))

    @property
    def key_text(self) -> str:
        """The key as JSON text."""
        return self.key if isinstance(self.key, str) else key_text(self.key)

    @property
    def place(self) -> Place:
        """Position and ordinal, which order the changes of a lane."""
        return self.position, self.ordinal or 0

    def replace(self, **altered: Any) -> Change:
        """A copy with other fields: `dataclasses.replace` in a fraction of the time."""
        draft = _Draft(*values(self))
        for name, value in altered.items():
            try:
                setattr(draft, name, value)
            except AttributeError:
                raise TypeError(f"a Change has no {name}") from None
        return _finished(draft)

    def checksum(self) -> str:
        """A digest of the fields that no transform may alter, which identifies this change in its source."""
        text = "\x1f".join(map(str, (self.position, self.op, self.table, self.key_text, self.at)))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


values = attrgetter(*CHANGES.names)
"""The fields of a change as a tuple."""

_Draft: Any = make_dataclass("_Draft", CHANGES.names, slots=True)
"""The fields of a Change before its class is set: millions are created, and the constructor of a frozen dataclass is slow."""


def _finished(draft: Any) -> Change:
    draft.__class__ = Change
    change: Change = draft
    return change


def key_text(key: bytes | None) -> str:
    """The key of a message as JSON text."""
    return f'{{"key":{json_of(key)}}}'


def described(change: Change) -> str:
    """A change in the words of an error."""
    place = change.position if change.ordinal is None else f"{change.position}.{change.ordinal}"
    key = change.key_text
    return f"change {place} of {change.table}, key {key if len(key) <= KEY_SHOWN else key[:KEY_SHOWN] + '...'}"


def to_batch(changes: Iterable[Change]) -> pa.RecordBatch:
    """Changes as one Arrow batch."""
    return of_values(map(values, changes))


def of_values(rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Changes, given as tuples of fields, as one Arrow batch. Raises TypeError if they are both rows and messages."""
    given = list(rows)
    kinds = {type(row[_KEY]) for row in given} - {type(None)} or {type(row[_AFTER]) for row in given}
    if len(kinds & {str, bytes}) > 1:
        raise TypeError("a batch has rows or messages, not both")
    return pa.RecordBatch.from_struct_array(pa.array(given, _STRUCT if str in kinds or not given else _MESSAGE_STRUCT))


def last_place(changes: pa.RecordBatch) -> Place:
    """Position and ordinal of the last change."""
    return last_position(changes), changes.column("ordinal")[changes.num_rows - 1].as_py() or 0


def last_position(changes: pa.RecordBatch) -> int:
    """The position of the last change."""
    position: int = changes.column("position")[changes.num_rows - 1].as_py()
    return position


def places(changes: pa.RecordBatch) -> list[Place]:
    """Position, and ordinal or 0, of each change."""
    positions, ordinals = changes.column("position").to_pylist(), changes.column("ordinal")
    if ordinals.null_count == len(ordinals):
        return list(zip(positions, repeat(0), strict=False))
    return [(position, ordinal or 0) for position, ordinal in zip(positions, ordinals.to_pylist(), strict=True)]


def from_batch(batch: pa.RecordBatch) -> Iterator[Change]:
    """The changes of an Arrow batch, in order; columns that are not in CHANGES are ignored."""
    return map(_finished, map(_Draft, *map(listed, columns_of(batch))))


def listed(column: pa.Array) -> list[Any]:
    """The values of a column of changes, times in microseconds."""
    if pa.types.is_map(column.type):
        return [tuple(pairs or ()) for pairs in column.to_pylist()] if len(column.items) else [()] * len(column)
    if column.null_count == len(column):  # common in the last columns
        return [None] * len(column)
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def columns_of(batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns of a batch in the order of CHANGES."""
    return [batch.column(name) for name in CHANGES.names]


def from_row(columns: Sequence[pa.Array], index: int) -> Change:
    """The change in one row of a batch with these columns, in a third of the time of `from_batch`."""
    return _finished(_Draft(*(_value(column, index) for column in columns)))


def _value(column: pa.Array, index: int) -> Any:
    if pa.types.is_map(column.type):
        return tuple(column[index].as_py() or ())
    return column[index].value if pa.types.is_timestamp(column.type) else column[index].as_py()


def last_of(changes: pa.RecordBatch) -> Change:
    """The last change."""
    return from_row(columns_of(changes), changes.num_rows - 1)
