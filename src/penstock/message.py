"""A message for a topic, and the change in which it travels: every byte of key, value and headers is kept.

Bytes that are UTF-8 are JSON strings, all others {"$blob": base64}. A message without a value (a tombstone) is a `delete`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from penstock.change import Change, Op

Header = tuple[str, bytes | None]


class Message(NamedTuple):
    """What a writer has stashed. No value: a tombstone. No key: it shares its order with all others of its topic that have none."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def to_change(message: Message, position: int, at: int = 0) -> Change:
    """The change that carries this message."""
    key, body = key_text(message.key), body_text(message.value, message.headers)
    if message.value is None:
        return Change(position, Op.DELETE, message.topic, key, before=body, at=at)
    return Change(position, Op.INSERT, message.topic, key, after=body, at=at)


def of_change(change: Change) -> Message | None:
    """The message that this change of a source of messages carries; None if a transform has made something else of it."""
    image = change.after if change.op != Op.DELETE else change.before
    if not change.key or not image:
        return None
    key, body = orjson.loads(change.key), orjson.loads(image)
    if not (isinstance(key, dict) and isinstance(body, dict) and len(key) == 1 and len(body) == 2):
        return None
    try:
        word, value, pairs = key["key"], body["value"], body["headers"]
    except KeyError:
        return None
    headers = tuple((name, _bytes(said)) for name, said in pairs) if pairs != [] else ()
    return Message(change.table, _bytes(word), _bytes(value), headers)


def key_text(key: bytes | None) -> str:
    """The key of a change that carries a message with this key."""
    return f'{{"key":{_text(key)}}}'


def body_text(value: bytes | None, headers: Sequence[Header]) -> str:
    """The image of a change that carries a message with this value and these headers."""
    pairs = ",".join([f"[{_text(name.encode())},{_text(said)}]" for name, said in headers]) if headers else ""
    return f'{{"value":{_text(value)},"headers":[{pairs}]}}'


def _text(raw: bytes | None) -> str:
    """These bytes as JSON: joined by hand, since an object for each would take twice the time."""
    if raw is None:
        return "null"
    try:
        return orjson.dumps(raw.decode()).decode()
    except UnicodeDecodeError:
        return f'{{"$blob":"{b64encode(raw).decode()}"}}'


def _bytes(word: Any) -> bytes | None:
    if isinstance(word, str):
        return word.encode()
    return None if word is None else b64decode(word["$blob"])
