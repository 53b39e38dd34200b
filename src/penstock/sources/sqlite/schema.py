"""The tables and triggers of a database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import ConfigInvalid
from penstock.sources.sqlite.effects import Effects
from penstock.sources.sqlite.expression import TooHard, expression
from penstock.sources.sqlite.shape import EXPRESSION, TableFacts, Unique
from penstock.sources.sqlite.triggers import PREFIX, quoted, seal_of
from penstock.sources.sqlite.wording import folded, plain, predicate_of, words

Selects = Callable[[str], bool]  # whether a name is chosen
_OTHERS = {"view": "a view: capture the tables below it", "virtual": "a virtual table: it cannot have triggers"}


@dataclass(frozen=True, slots=True)
class PresentTrigger:
    """A trigger in sqlite_master; one with a greater row was created later."""

    row: int
    name: str
    table: str
    sql: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables by name, all triggers, the reasons against other tables, and the rows of seals by name."""

    tables: Mapping[str, TableFacts]
    triggers: tuple[PresentTrigger, ...]
    others: Mapping[str, str]
    seals: Mapping[str, int]

    def foreign(self, table: str) -> Iterator[PresentTrigger]:
        """The application's own triggers of a table."""
        return (trigger for trigger in self.triggers if trigger.table == table and not is_ours(trigger.name))


def is_ours(name: str) -> bool:
    """Whether a name belongs to SQLite or Penstock: it is never captured."""
    return name.lower().startswith((PREFIX, "sqlite_"))


def matcher(key: str, text: str | None) -> Selects:
    """A function that matches whole names against the regular expression of a key; without one, every name matches."""
    if text is None:
        return lambda name: True
    try:
        return expression(text)
    except TooHard as error:
        raise ConfigInvalid(f"{key}: {text!r} cannot be matched in a bounded time: {error}", "write it without them") from error
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigInvalid(f"{key}: {text!r} is not a regular expression: {error}", "correct the expression") from error


def read_schema(connection: sqlite3.Connection) -> Schema:
    """The present schema."""
    listed = _rows(connection, "select * from pragma_table_list where schema = 'main' order by name")
    spelled = {folded(row["name"]): row["name"] for row in listed}  # a trigger keeps the spelling of its own statement
    triggers = connection.execute("select rowid, name, tbl_name, sql from sqlite_master where type = 'trigger'")
    present = tuple(PresentTrigger(row, name, spelled.get(folded(table), table), sql) for row, name, table, sql in triggers)
    theirs = [row for row in listed if not is_ours(row["name"])]
    with closing(Effects(connection)) as effects:
        found = [row for row in theirs if row["type"] == "table"]
        tables = {row["name"]: _facts(connection, row["name"], bool(row["wr"]), present, effects) for row in found}
    seals = dict(connection.execute(f"select name, rowid from sqlite_master where type = 'view' and name glob '{seal_of('*')}'"))
    return Schema(tables, present, {row["name"]: _OTHERS[row["type"]] for row in theirs if row["type"] in _OTHERS}, seals)


def _facts(
    connection: sqlite3.Connection, table: str, without_rowid: bool, present: tuple[PresentTrigger, ...], effects: Effects
) -> TableFacts:
    of_master = "select rowid, sql from sqlite_master where type = 'table' and name = ?"
    [(master_row, create_sql)] = connection.execute(of_master, (table,)).fetchall()
    columns = tuple(_rows(connection, "select * from pragma_table_xinfo(?)", table))
    unique = "select name, origin, partial from pragma_index_list(?) where \"unique\" order by origin != 'pk', name"
    indexes = _rows(connection, unique, table)
    to_itself = 'select "from" from pragma_foreign_key_list(?) where "table" = ? collate nocase and on_delete like \'SET %\''
    own = [(trigger.name, trigger.sql) for trigger in present if trigger.table == table and not is_ours(trigger.name)]
    stored = [column["name"] for column in columns if not column["hidden"]]
    return TableFacts(
        table=table,
        create_sql=create_sql,
        master_row=master_row,
        without_rowid=without_rowid,
        columns=columns,
        uniques=tuple(_unique(connection, table, index, [column["name"] for column in columns]) for index in indexes),
        has_key_index=any(index["origin"] == "pk" for index in indexes),
        early_writers=effects.writers(table, stored, own),
        self_references=tuple(row["from"] for row in _rows(connection, to_itself, table, table)),
        is_circular=effects.is_circular(table),
    )


def _unique(connection: sqlite3.Connection, table: str, index: Mapping[str, Any], columns: Sequence[str]) -> Unique:
    keyed = connection.execute("select name, coll from pragma_index_xinfo(?) where key", (index["name"],))
    found = Unique(tuple((name or EXPRESSION, collation) for name, collation in keyed), index["origin"] != "c")
    if not index["partial"]:
        return found
    [(sql,)] = connection.execute("select sql from sqlite_master where type = 'index' and name = ?", (index["name"],)).fetchall()
    predicate = predicate_of(sql)
    used = {plain(word).lower() for word in words(predicate)}
    named = tuple(column for column in columns if column.lower() in used)
    if predicate and _is_usable(connection, table, index["name"], predicate, columns):
        return replace(found, predicate=predicate, predicate_columns=named)
    return replace(found, predicate_columns=tuple(columns))


def _is_usable(connection: sqlite3.Connection, table: str, index: str, predicate: str, columns: Sequence[str]) -> bool:
    """Whether SQLite, in any program, accepts this condition in a query and uses the index for it."""
    known = {column.lower() for column in columns}
    if any(word[0] in '"`[' and plain(word).lower() not in known for word in words(predicate)):
        return False  # text in double quotes, which SQLite does not accept in every program
    try:
        connection.execute(f"explain select 1 from {quoted(table)} t indexed by {quoted(index)} where {predicate}")
    except sqlite3.OperationalError:
        return False
    return True


def _rows(connection: sqlite3.Connection, sql: str, *arguments: str) -> list[dict[str, Any]]:
    cursor = connection.execute(sql, arguments)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
