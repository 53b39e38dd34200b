"""The facts that convert rows of a receiver after a table was altered in place."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from penstock.sources.sqlite.shape import Shape, TableFacts
from penstock.sources.sqlite.triggers import quoted


def generated(facts: TableFacts) -> frozenset[str]:
    """Generated columns."""
    return frozenset(column["name"] for column in facts.columns if column["hidden"])


def by_place(was: Shape, now: Shape) -> dict[str, str]:
    """Old and new names of renamed columns if none was dropped: columns keep their places, and new ones come last."""
    return {old: new for old, new in zip(was.columns, now.columns, strict=False) if old != new}


def is_clear(was: Shape, now: Shape, facts: TableFacts) -> bool:
    """Whether names alone identify columns: none vanished while others appeared, and no new column is generated."""
    appeared = now.names - was.names
    return not (appeared and was.names - now.names) and not appeared & generated(facts)


def defaults(connection: sqlite3.Connection, facts: TableFacts, names: frozenset[str]) -> dict[str, Any]:
    """The values of added columns in the rows that existed before."""
    return {column["name"]: _default(connection, column) for column in facts.columns if column["name"] in names}


def _default(connection: sqlite3.Connection, column: Mapping[str, Any]) -> Any:
    """The default, converted as in a column of this type."""
    if column["dflt_value"] is None:
        return None
    connection.execute(f"create temp table penstock_default(a, b {quoted(column['type'])} default ({column['dflt_value']}))")
    connection.execute("insert into temp.penstock_default(a) values(1)")
    [(value,)] = connection.execute("select b from temp.penstock_default").fetchall()
    connection.execute("drop table temp.penstock_default")
    return {"$blob": b64encode(value).decode()} if isinstance(value, bytes) else value
