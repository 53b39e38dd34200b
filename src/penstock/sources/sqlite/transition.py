"""What a receiver has to know to turn the rows it has into rows of a table that was altered in place."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from penstock.sources.sqlite.shape import Shape, TableFacts
from penstock.sources.sqlite.triggers import quoted


def generated(facts: TableFacts) -> frozenset[str]:
    """Columns whose values come from others."""
    return frozenset(column["name"] for column in facts.columns if column["hidden"])


def by_place(was: Shape, now: Shape) -> dict[str, str]:
    """Old and new names of renamed columns, where none can have been dropped: columns keep their places, new ones come last."""
    return {old: new for old, new in zip(was.columns, now.columns, strict=False) if old != new}


def is_clear(was: Shape, now: Shape, facts: TableFacts) -> bool:
    """Whether names alone tell what became of the columns: none vanished while others appeared, and none is computed."""
    appeared = now.names - was.names
    return not (appeared and was.names - now.names) and not appeared & generated(facts)


def defaults(connection: sqlite3.Connection, facts: TableFacts, names: frozenset[str]) -> dict[str, Any]:
    """What added columns hold in the rows that were there before."""
    return {column["name"]: _default(connection, column) for column in facts.columns if column["name"] in names}


def _default(connection: sqlite3.Connection, column: Mapping[str, Any]) -> Any:
    """The default as SQLite stores it in a column of this type."""
    if column["dflt_value"] is None:
        return None
    connection.execute(f"create temp table penstock_default(a, b {quoted(column['type'])} default ({column['dflt_value']}))")
    connection.execute("insert into temp.penstock_default(a) values(1)")
    [(value,)] = connection.execute("select b from temp.penstock_default").fetchall()
    connection.execute("drop table temp.penstock_default")
    return {"$blob": b64encode(value).decode()} if isinstance(value, bytes) else value
