"""Stash messages in an outbox, inside the transaction that makes them true.

    with psycopg.connect(...) as connection:
        connection.execute("insert into orders ...")
        penstock.outbox.stash(connection, "orders", "42", {"id": 42, "state": "paid"})

`connection` is what the caller writes with: a connection or a cursor of psycopg 3 or of another DB-API driver for Postgres, a
session or connection of SQLAlchemy, or Django's `connection`. With an asynchronous one: `await stash(...)`. Nothing is committed
here: what the caller commits is sent, and what is rolled back never was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Iterable, Mapping
from inspect import isawaitable
from typing import Any

Text = bytes | bytearray | memoryview | str | None
"""Bytes as they are, or text, which becomes UTF-8."""

Headers = Mapping[str, Text] | Iterable[tuple[str, Text]]
"""Names and values in order; a name may come several times, if they are given as pairs."""

_COLUMNS = ("topic", "key", "value", "header_keys", "header_values")


def stash(
    connection: Any,
    topic: str,
    key: Text,
    value: Text | Mapping[str, Any] | list[Any],
    headers: Headers = (),
    *,
    table: str = "outbox",
) -> Awaitable[None] | None:
    """Stash one message; a mapping or a list becomes JSON, no value is a tombstone. Await it on an asynchronous connection."""
    return _write(connection, table, [_row(topic, key, value, headers)])


def stash_many(connection: Any, messages: Iterable[Any], *, table: str = "outbox") -> Awaitable[None] | None:
    """Stash many at once, in this order: tuples of topic, key, value and perhaps headers, or objects with these names."""
    rows = [_row(*one) if isinstance(one, tuple) else _row(one.topic, one.key, one.value, one.headers) for one in messages]
    return _write(connection, table, rows)


def quoted(table: str) -> str:
    """The name of a table for SQL, exactly this one; a dot parts it from its schema."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def _row(topic: str, key: Text, value: Any, headers: Headers = ()) -> tuple[Any, ...]:
    if not topic:
        raise ValueError("a message needs a topic")
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = [_name(name) for name, _ in pairs] or None
    payload = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, Mapping | list) else value
    return topic, _raw("key", key), _raw("value", payload), names, [_raw("header", said) for _, said in pairs] if pairs else None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is text, not {type(name).__name__}")
    return name


def _raw(what: str, given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a {what} is text or bytes, not {type(given).__name__}")


def _write(connection: Any, table: str, rows: list[tuple[Any, ...]]) -> Awaitable[None] | None:
    insert = f"insert into {quoted(table)} ({', '.join(_COLUMNS)}) values "
    if any(kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__):
        marks = ", ".join(f":{name}" for name in _COLUMNS)
        facts = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        done = connection.execute(sys.modules["sqlalchemy"].text(f"{insert}({marks})"), facts) if rows else None
        return _awaited(done) if isawaitable(done) else None
    is_cursor = not callable(getattr(connection, "cursor", None))
    cursor = connection if is_cursor else connection.cursor()
    sql = f"{insert}(%s, %s, %s, %s, %s)"
    done = cursor.execute(sql, rows[0]) if len(rows) == 1 else cursor.executemany(sql, rows)
    if isawaitable(done):
        return _awaited(done, None if is_cursor else cursor)
    if not is_cursor:
        cursor.close()
    return None


async def _awaited(done: Awaitable[Any], cursor: Any = None) -> None:
    await done
    if cursor is not None:
        await cursor.close()
