"""The shape of a captured table: its columns, its key, its unique columns. Pure, from the rows of pragmas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.sources.sqlite.expression import expression
from penstock.sources.sqlite.wording import is_literal

MAX_COLUMNS = 990  # two images and the columns of Penstock must fit into the 2000 columns of a log row
EXPRESSION = "\0"  # in an index, in place of a name, which never contains it
ROW_IDS_ONLY = "(?!)"  # a choice of no columns: only the key is captured


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns that are unique together, each with the collation that compares its values."""

    columns: tuple[tuple[str, str], ...]
    is_declared: bool = True  # in the table itself, so that SQLite refuses to drop its columns
    predicate: str = ""  # of a partial index, as SQL
    predicate_columns: tuple[str, ...] = ()  # a change of these alone can put a row into the index


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts of a table from which its triggers are made."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # the declared primary key; empty if there is none
    row_id: str | None  # the name of the row id in SQL; None WITHOUT ROWID
    uniques: tuple[Unique, ...]  # without the row id; WITHOUT ROWID the primary key comes first
    reals: tuple[str, ...]  # columns that may hold a floating-point number: all but text and the row id
    create_sql: str
    choice: str | None = None  # regular expression for `table.column`; the key is always captured
    left_out: tuple[str, ...] = ()  # by that choice
    filled: tuple[tuple[str, str | None], ...] = ()  # by column, the default that REPLACE sets for NULL; None if no literal
    computed: tuple[str, ...] = ()  # generated columns that depend on those
    is_circular: bool = False  # the removal of a row can write to the table again, through foreign keys

    @property
    def names(self) -> frozenset[str]:
        """All columns of the table."""
        return frozenset(self.columns + self.left_out)

    @property
    def collisions(self) -> tuple[object, ...]:
        """The facts that decide which rows a write collides with."""
        return self.uniques, self.filled, self.computed

    def outline(self) -> dict[str, Any]:
        """The facts of a table in a schema event."""
        return {"table": self.table, "columns": self.columns, "key": self.key}

    def of_key(self) -> Shape:
        """The shape of the same table with the key alone."""
        return replace(self, columns=self.key, left_out=())

    def to_json(self) -> str:
        """The shape as text, for the catalogue."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Shape:
        """The shape of a text of the catalogue; that of an earlier version may lack facts."""
        facts = _frozen(json.loads(text))
        return Shape(**facts | {"uniques": tuple(Unique(**one) for one in facts["uniques"])})


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(one) for name, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table in SQLite: rows of `table_xinfo`, and its unique indexes, that of the primary key first."""

    table: str
    create_sql: str
    master_row: int  # of sqlite_master
    without_rowid: bool
    columns: tuple[Mapping[str, Any], ...]
    uniques: tuple[Unique, ...]
    has_key_index: bool  # otherwise the primary key is the row id, or there is none
    early_writers: tuple[str, ...] = ()  # triggers of the application that write to the table before its row is written
    self_references: tuple[str, ...] = ()  # columns that SQLite sets when their row is deleted
    is_circular: bool = False

    @property
    def generated(self) -> frozenset[str]:
        """Generated columns."""
        return frozenset(column["name"] for column in self.columns if column["hidden"])


def shape_of(facts: TableFacts, choice: str | None = None) -> Shape:
    """The shape of a table that can be captured, with the chosen columns."""
    names = tuple(column["name"] for column in facts.columns)
    keyed = sorted((column for column in facts.columns if column["pk"]), key=lambda column: column["pk"])
    row_id = None if facts.without_rowid else _row_id(names)
    key = tuple(column["name"] for column in keyed)
    is_chosen = (lambda name: True) if choice is None else expression(choice)
    kept = tuple(name for name in names if name in key or is_chosen(f"{facts.table}.{name}"))
    left_out = tuple(name for name in names if name not in kept)
    uniques, reals, filled = facts.uniques, _reals(facts), _filled(facts)
    return Shape(facts.table, kept, key, row_id, uniques, reals, facts.create_sql, choice, left_out, *filled, facts.is_circular)


def _filled(facts: TableFacts) -> tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]]:
    """The columns of unique indexes that are NULL in a trigger before the write and have the default in the row."""
    used = {name for one in facts.uniques for name in (*(name for name, _ in one.columns), *one.predicate_columns)}
    computed = tuple(column["name"] for column in facts.columns if column["hidden"] and column["name"] in used)
    filled = tuple(
        (column["name"], column["dflt_value"] if is_literal(column["dflt_value"]) else None)
        for column in facts.columns
        if column["notnull"] and column["dflt_value"] is not None and (computed or column["name"] in used)
    )
    return filled, computed if filled else ()


def refusal(facts: TableFacts) -> str | None:
    """The reason why this table cannot be captured exactly, if there is one."""
    names = tuple(column["name"] for column in facts.columns)
    if len(names) > MAX_COLUMNS:
        return f"it has {len(names)} columns, more than {MAX_COLUMNS}"
    if not facts.without_rowid and _row_id(names) is None:
        return "its columns hide all three names of the row id"
    indexed = {name for one in facts.uniques for name, _ in one.columns}
    if EXPRESSION in indexed:
        return "it has a unique index on an expression, by which REPLACE removes rows that triggers cannot find"
    if indexed & set(facts.self_references):
        return "it has a unique column that points to the table itself, ON DELETE SET"
    if facts.early_writers:
        return f"its own trigger {facts.early_writers[0]} writes to it before the row itself is written"
    return None


def _row_id(names: Iterable[str]) -> str | None:
    taken = {name.lower() for name in names}
    return next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken), None)


def _reals(facts: TableFacts) -> tuple[str, ...]:
    row_id = {column["name"] for column in facts.columns if column["pk"]} if has_fixed_row_ids(facts) else set()
    return tuple(column["name"] for column in facts.columns if column["name"] not in row_id and not _is_text(column["type"]))


def _is_text(declared: str) -> bool:
    """Whether a column of this declared type has the affinity that converts numbers to text."""
    kind = declared.upper()
    return "INT" not in kind and any(word in kind for word in ("CHAR", "CLOB", "TEXT"))


def has_fixed_row_ids(facts: TableFacts) -> bool:
    """Whether VACUUM keeps row ids: the primary key is the row id, a single INTEGER for which SQLite makes no index."""
    return any(column["pk"] for column in facts.columns) and not facts.has_key_index
