"""Reading a capture log back into the tables it came from, strictly: every event must fit what the earlier ones made."""

from __future__ import annotations

import json
import sqlite3
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deadline import PATIENCE
from facts import row_ids
from penstock.change import Change, from_batch
from penstock.source import ANONYMOUS, Span, Window
from penstock.sources.sqlite.source import LANE, SqliteSource

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


def connect(path: Path, **pragmas: object) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    for name, value in {"journal_mode": "wal", "synchronous": "normal", **pragmas}.items():
        connection.execute(f"pragma {name} = {value}")
    return connection


def logged(path: Path, tables: str | None = None, *, heal: bool = True) -> list[Change]:
    """All changes of the log, with those that healing adds while it is read."""
    source, found, upto = SqliteSource(database=str(path), tables=tables, heal=heal), [], None
    while (head := source.head(LANE)) != upto:
        span = Span(LANE, upto or source.begin(LANE, "beginning"), head)
        found += [change for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]
        upto = head
    return found


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


def replayed(changes: Iterable[Change], *, is_strict: bool = True) -> Rows:
    replica = Replica(is_strict)
    for change in changes:
        replica.take(change)
    return replica.rows


class Replica:
    """What a receiver keeps. A strict one believes that nothing was ever told again."""

    def __init__(self, is_strict: bool) -> None:
        self.rows: Rows = {}
        self.told: dict[tuple[str, tuple[Any, ...]], int] = {}
        self.is_strict = is_strict

    def take(self, change: Change) -> None:
        table = self.rows.setdefault(change.table, {})
        if change.op == "schema":
            self.alter(change)
            return
        key = values(change.key)
        if change.before is not None:
            before = values(change.before)
            found = table.pop(_key(key, before, row_ids(change)[0]), None)
            assert not self.is_strict or (found is not None and exact(found) == exact(before)), change
        if change.after is not None:
            after = values(change.after)
            new = _key(key, after, row_ids(change)[1])
            assert not self.is_strict or new not in table, change
            assert new == tuple(key.values()), change
            table[new] = after
            self.told[change.table, new] = change.position

    def alter(self, change: Change) -> None:
        was, now = (json.loads(text) if text else {} for text in (change.before, change.after))
        if not now:
            self.rows[change.table] = {}
        elif was:
            self.rows[now["table"]] = {key: _altered(row, was, now) for key, row in self.rows.pop(was["table"], {}).items()}
        if now.get("rescan") == "end":
            table = self.rows[change.table]
            self.rows[change.table] = {
                key: row for key, row in table.items() if self.told.get((change.table, key), 0) > now["since"]
            }


def _altered(row: dict[str, Any], was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    renamed = {name: now.get("renamed", {}).get(name, name) for name in was["columns"]}
    kept = {renamed[name]: found for name, found in row.items() if renamed[name] in now["columns"]}
    return kept | {name: value(added) for name, added in now.get("added", {}).items()}


def _key(key: dict[str, Any], image: dict[str, Any], row_id: int | None) -> tuple[Any, ...]:
    """A name that is no column is that of the row id."""
    return tuple(image[name] for name in key) if image.keys() >= key.keys() else (row_id,)


def present(connection: sqlite3.Connection, table: str) -> list[dict[str, tuple[str, str]]]:
    cursor = connection.execute(f'select * from "{table}"')
    names = [column[0] for column in cursor.description]
    return sorted((exact(dict(zip(names, row, strict=True))) for row in cursor), key=repr)


def assert_log_makes(path: Path, connection: sqlite3.Connection, tables: Iterable[str], *, is_strict: bool = True) -> None:
    rows = replayed(logged(path), is_strict=is_strict)
    for table in tables:
        assert sorted(map(exact, rows.get(table, {}).values()), key=repr) == present(connection, table), table


def source_of(path: Path, tables: str | None = None, *, heal: bool = True) -> SqliteSource:
    return SqliteSource(database=str(path), tables=tables, heal=heal)


def followed(windows: Iterator[Window], upto: int, within: float = PATIENCE) -> list[Window]:
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
