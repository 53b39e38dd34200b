"""Stash messages in an outbox, in the transaction of the application.

    with psycopg.connect(...) as connection:
        connection.execute("insert into orders ...")
        penstock.outbox.stash(connection, "orders", "42", {"id": 42, "state": "paid"})

`connection` is a connection or a cursor of psycopg 3 or of another DB-API driver for Postgres, a session or connection of
SQLAlchemy, or the `connection` of Django. With an asynchronous one: `await stash(...)`. The caller commits or rolls back.

`layout="goharvest"` writes to the table of goharvest, for reader mark: in Postgres, MySQL, MariaDB or SQLite.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args

Text = bytes | bytearray | memoryview | str | None
"""Bytes, or text, which is encoded as UTF-8."""

Headers = Mapping[str, Text] | Iterable[tuple[str, Text]]
"""Names and values in order; pairs may repeat a name."""

Layout = Literal["penstock", "goharvest"]
"""The columns of a table."""


class Where(TypedDict, total=False):
    """The table, by default `outbox` in the layout of Penstock."""

    table: str
    layout: Layout


class Table(NamedTuple):
    """A table for `penstock outbox init`: its SQL, and a function that creates it unless it exists; the result in words."""

    statements: Sequence[str]
    create: Callable[[], str]


_COLUMNS = ("topic", "key", "value", "header_keys", "header_values")
_DATABASES = {"sqlite": "sqlite", "sqlite3": "sqlite"} | dict.fromkeys(("mysql", "mariadb", "pymysql", "MySQLdb"), "mysql")


def stash(
    connection: Any,
    topic: str,
    key: Text,
    value: Text | Mapping[str, Any] | list[Any],
    headers: Headers = (),
    **where: Unpack[Where],
) -> Awaitable[None] | None:
    """Stash one message. A mapping or a list becomes JSON; None is a tombstone. Await it on an asynchronous connection."""
    return _write(connection, [_row(topic, key, value, headers)], **where)


def stash_many(connection: Any, messages: Iterable[Any], **where: Unpack[Where]) -> Awaitable[None] | None:
    """Stash messages in order: tuples of topic, key, value and optional headers, or objects with these attributes."""
    rows = [_row(*one) if isinstance(one, tuple) else _row(one.topic, one.key, one.value, one.headers) for one in messages]
    return _write(connection, rows, **where)


def quoted(table: str, mark: str = '"') -> str:
    """The quoted name of a table for SQL; a dot separates it from its schema."""
    return ".".join(mark + part.replace(mark, 2 * mark) + mark for part in table.split("."))


def _row(topic: str, key: Text, value: Any, headers: Headers = ()) -> tuple[Any, ...]:
    if not topic:
        raise ValueError("a message needs a topic")
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = [_name(name) for name, _ in pairs] or None
    payload = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, Mapping | list) else value
    return topic, _raw("key", key), _raw("value", payload), names, [_raw("header", said) for _, said in pairs] if pairs else None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header must be text, not {type(name).__name__}")
    return name


def _raw(what: str, given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a {what} must be text or bytes, not {type(given).__name__}")


def _insert(table: str, layout: Layout, database: str) -> tuple[Sequence[str], str]:
    if layout == "penstock":
        return _COLUMNS, f"insert into {quoted(table)} ({', '.join(_COLUMNS)}) values ("
    names = [f"kafka_{name}" for name in _COLUMNS]
    where = quoted(table, "`" if database == "mysql" else '"')
    return names, f"insert into {where} (create_time, {', '.join(names)}) values (current_timestamp, "


def _plain(row: tuple[Any, ...], database: str) -> tuple[Any, ...]:
    """A row for the table of goharvest: text, and lists as JSON if the database has no arrays."""
    topic, key, value, names, said = row
    if key is None:
        raise ValueError("the table of goharvest requires a key for each message")
    lists: list[Any] = [names or [], [_text("header", one) for one in said or ()]]
    if database != "postgresql":
        lists = [json.dumps(one, ensure_ascii=False) for one in lists]
    return topic, _text("key", key), _text("value", value), *lists


def _text(what: str, raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the table of goharvest holds text, and a {what} is not in UTF-8") from None


def _database(connection: Any) -> str:
    """The database, by SQLAlchemy, Django or the driver; Postgres if it is unknown."""
    if "sqlalchemy" in _packages(connection):
        bound = connection if hasattr(connection, "dialect") else connection.get_bind()
        return _DATABASES.get(bound.dialect.name, "postgresql")
    vendor = getattr(getattr(connection, "db", connection), "vendor", None)
    said = [vendor] if vendor else _packages(connection)
    return next((_DATABASES[name] for name in said if name in _DATABASES), "postgresql")


def _packages(thing: Any) -> list[str]:
    return [kind.__module__.partition(".")[0] for kind in type(thing).__mro__]


def _write(
    connection: Any, rows: list[tuple[Any, ...]], table: str = "outbox", layout: Layout = "penstock"
) -> Awaitable[None] | None:
    if layout not in get_args(Layout):
        raise ValueError(f"unknown layout {layout!r}: choose penstock or goharvest")
    database = _database(connection) if layout == "goharvest" else "postgresql"
    names, insert = _insert(table, layout, database)
    if layout == "goharvest":
        rows = [_plain(row, database) for row in rows]
    if "sqlalchemy" in _packages(connection):
        sql = f"{insert}{', '.join(f':{name}' for name in names)})"
        facts = [dict(zip(names, row, strict=True)) for row in rows]
        done = connection.execute(sys.modules["sqlalchemy"].text(sql), facts) if rows else None
        return _awaited(done) if isawaitable(done) else None
    is_cursor = not callable(getattr(connection, "cursor", None))
    cursor = connection if is_cursor else connection.cursor()
    sql = f"{insert}{', '.join(['?' if 'sqlite3' in _packages(cursor) else '%s'] * len(names))})"
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
