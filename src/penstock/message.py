"""A message for a topic, its change, and its document: the same change as JSON text, for consumers of JSON.

A message without a value (a tombstone) is a `delete`. A document has the key {"key": ...} and
the image {"value": ..., "headers": ...}.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from penstock.change import CHANGES, Change, Header, Op, from_batch, key_text, listed, to_batch
from penstock.text.raw import bytes_of, json_of


class Message(NamedTuple):
    """A stashed message. Without a value it is a tombstone; the messages of a topic without a key share one order."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def of_change(change: Change) -> Message | None:
    """The message of a change or of its document; None if it is neither."""
    if change.is_message:
        return Message(change.table, change.key, change.after, change.headers)  # type: ignore[arg-type]
    image = change.after if change.op != Op.DELETE else change.before
    if not change.key or not image:
        return None
    match orjson.loads(change.key), orjson.loads(image):
        case {"key": key, **further}, {"value": value, "headers": headers, **more} if not further and not more:
            return Message(change.table, bytes_of(key), bytes_of(value), _pairs(headers))
    return None


def document(change: Change) -> Change:
    """The document of a message; any other change unchanged."""
    if not change.is_message:
        return change
    body = body_text(change.after, change.headers)  # type: ignore[arg-type]
    images = {"before": body, "after": None} if change.after is None else {"before": None, "after": body}
    return change.replace(key=change.key_text, headers=(), **images)


def native(change: Change) -> Change:
    """The message of a document; any other change unchanged."""
    try:
        message = None if change.is_message else of_change(change)
    except (ValueError, TypeError, KeyError, AttributeError):
        return change  # the sink reports the defect
    return change if message is None else change.replace(key=message.key, before=None, after=message.value, headers=message.headers)


def natives(documents: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The messages of documents, in runs: a transform may have replaced some of them by rows."""
    for _, run in groupby(map(native, from_batch(documents)), lambda change: change.is_message):
        yield to_batch(run)


def documents(changes: pa.RecordBatch) -> pa.RecordBatch:
    """The documents of messages; changes of rows unchanged."""
    if not is_messages(changes):
        return changes
    keys, values, headers = (listed(changes.column(name)) for name in ("key", "after", "headers"))
    bodies = list(map(body_text, values, headers))
    made = {
        "key": list(map(key_text, keys)),
        "before": [body if value is None else None for body, value in zip(bodies, values, strict=True)],
        "after": [None if value is None else body for body, value in zip(bodies, values, strict=True)],
        "headers": [None] * len(bodies),
    }
    columns = [pa.array(made[one.name], one.type) if one.name in made else changes.column(one.name) for one in CHANGES]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES)


def is_messages(changes: pa.RecordBatch) -> bool:
    """Whether a batch has messages, and not rows."""
    return bool(pa.types.is_binary(changes.schema.field("key").type))


def body_text(value: bytes | None, headers: Sequence[Header]) -> str:
    """The image of a document."""
    return f'{{"value":{json_of(value)},"headers":{headers_text(headers) if headers else "[]"}}}'


def pairs_of(headers: Any) -> Sequence[Header]:
    """Headers, given as pairs or a mapping to bytes or text, as pairs of text and bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, said.encode() if isinstance(said, str) else said) for name, said in pairs)


def headers_text(headers: Iterable[Header]) -> str:
    """Headers as JSON text."""
    return f"[{','.join([f'[{json_of(name.encode())},{json_of(said)}]' for name, said in headers])}]"


def headers_of(text: str | None) -> Sequence[Header]:
    """The headers of JSON text."""
    return _pairs(orjson.loads(text)) if text else ()


def _pairs(pairs: Any) -> Sequence[Header]:
    return tuple((name, bytes_of(said)) for name, said in pairs) if pairs != [] else ()
