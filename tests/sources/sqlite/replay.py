"""Reading a capture log back into the tables it came from, strictly: every event must fit what the earlier ones made."""

from __future__ import annotations

import json
import sqlite3
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.change import Change, from_batch
from penstock.source import Span, Window
from penstock.sources.sqlite.source import LANE, SqliteSource

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


def connect(path: Path, **pragmas: object) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    for name, value in {"journal_mode": "wal", "synchronous": "normal", **pragmas}.items():
        connection.execute(f"pragma {name} = {value}")
    return connection


def logged(path: Path, tables: str | None = None) -> list[Change]:
    """All changes of the log."""
    source = SqliteSource(database=str(path), tables=tables)
    span = Span(LANE, source.begin(LANE, "beginning"), source.head(LANE))
    return [change for batch in source.read(span) for change in from_batch(batch)]


def value(image: Any) -> Any:
    """What SQLite would give for a value of an image, with its type."""
    if isinstance(image, dict):
        [(kind, text)] = image.items()
        return {"$blob": b64decode, "$real": float, "$text": lambda raw: ("text", b64decode(raw))}[kind](text)
    return image


def values(text: str) -> dict[str, Any]:
    return {name: value(image) for name, image in json.loads(text).items()}


def exact(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """1, 1.0 and '1' apart."""
    return {name: (type(found).__name__, repr(found)) for name, found in row.items()}


def replayed(changes: Iterable[Change]) -> Rows:
    rows: Rows = {}
    for change in changes:
        table = rows.setdefault(change.table, {})
        key = values(change.key)
        if change.before is not None:
            before = values(change.before)
            old = _key(key, before, change.old_row_id)
            assert exact(table.pop(old)) == exact(before), change
        if change.after is not None:
            after = values(change.after)
            new = _key(key, after, change.new_row_id)
            assert new not in table, change
            assert new == tuple(key.values()), change
            table[new] = after
    return rows


def _key(key: dict[str, Any], image: dict[str, Any], row_id: int | None) -> tuple[Any, ...]:
    return (row_id,) if list(key) == ["rowid"] else tuple(image[name] for name in key)


def present(connection: sqlite3.Connection, table: str) -> list[dict[str, tuple[str, str]]]:
    cursor = connection.execute(f'select * from "{table}"')
    names = [column[0] for column in cursor.description]
    return sorted((exact(dict(zip(names, row, strict=True))) for row in cursor), key=repr)


def assert_log_makes(path: Path, connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    rows = replayed(logged(path))
    for table in tables:
        assert sorted(map(exact, rows.get(table, {}).values()), key=repr) == present(connection, table), table


def source_of(path: Path, tables: str | None = None) -> SqliteSource:
    return SqliteSource(database=str(path), tables=tables)


def followed(windows: Iterator[Window], upto: int, within: float = 20.0) -> list[Window]:
    """Windows until a position is reached."""
    found, end = [], time.monotonic() + within
    for window in windows:
        found.append(window)
        if window.upto and json.loads(window.upto)["position"] >= upto:
            return found
        assert time.monotonic() < end, "nothing came"
    raise AssertionError("it ended")


def positions(windows: Iterable[Window]) -> list[int]:
    return [position for window in windows for position in window.changes.column("position").to_pylist()]
