"""A table as it is captured: its columns, its key, what must be unique in it. Pure, from the rows of pragmas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

MAX_COLUMNS = 990  # two images and a few columns of ours must fit into the 2000 columns of a log row
ROW_IDS_ONLY = "(?!)"
"""The choice of columns that chooses none: the key is always there."""


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns that no two rows may share, each with the collation that decides what is the same."""

    columns: tuple[tuple[str, str], ...]
    is_declared: bool = True  # in the table itself, so that SQLite refuses to drop its columns


@dataclass(frozen=True, slots=True)
class Shape:
    """What the triggers of one table were made for."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]  # the declared primary key; empty if there is none
    row_id: str | None  # the name under which SQLite shows the row id; None WITHOUT ROWID
    uniques: tuple[Unique, ...]  # without the row id; WITHOUT ROWID the primary key comes first
    reals: tuple[str, ...]  # columns that may hold a floating-point number: all but text and the row id
    create_sql: str
    choice: str | None = None  # regular expression for `table.column`; the key is always captured
    left_out: tuple[str, ...] = ()  # by that choice

    @property
    def names(self) -> frozenset[str]:
        """All columns of the table."""
        return frozenset(self.columns + self.left_out)

    def outline(self) -> dict[str, Any]:
        """What a schema event tells of a table."""
        return {"table": self.table, "columns": self.columns, "key": self.key}

    def of_key(self) -> Shape:
        """The same table with nothing but its key."""
        return replace(self, columns=self.key, left_out=())

    def to_json(self) -> str:
        """The shape as the catalogue keeps it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Shape:
        """The shape of such a text."""
        facts: dict[str, Any] = json.loads(text)
        facts["uniques"] = tuple(Unique(_tuples(one["columns"]), one["is_declared"]) for one in facts["uniques"])
        facts |= {name: tuple(facts[name]) for name in ("columns", "key", "reals", "left_out")}
        return Shape(**facts)


def _tuples(pairs: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, collation) for name, collation in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What SQLite says of a table: rows of `table_xinfo`, and of `index_xinfo` for its unique indexes."""

    table: str
    create_sql: str
    master_row: int  # of sqlite_master
    without_rowid: bool
    columns: tuple[Mapping[str, Any], ...]
    unique_indexes: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...]  # origin ('pk', 'u', 'c') and its columns
    before_triggers: tuple[tuple[str, str], ...] = ()  # name and body of the application's own
    self_references: tuple[str, ...] = ()  # columns that SQLite sets when the row they point to goes


def shape_of(facts: TableFacts, choice: str | None = None) -> Shape:
    """The shape of an ordinary table that `refusal` has nothing against, with the chosen columns."""
    names = tuple(column["name"] for column in facts.columns)
    keyed = sorted((column for column in facts.columns if column["pk"]), key=lambda column: column["pk"])
    indexes = sorted(facts.unique_indexes, key=lambda index: index[0] != "pk")
    uniques = tuple(Unique(_indexed(columns), origin != "c") for origin, columns in indexes)
    row_id = None if facts.without_rowid else _row_id(names)
    key = tuple(column["name"] for column in keyed)
    kept = tuple(name for name in names if name in key or _is_chosen(facts.table, name, choice))
    left_out = tuple(name for name in names if name not in kept)
    return Shape(facts.table, kept, key, row_id, uniques, _reals(facts), facts.create_sql, choice, left_out)


def _is_chosen(table: str, column: str, choice: str | None) -> bool:
    return choice is None or re.fullmatch(choice, f"{table}.{column}") is not None


def refusal(facts: TableFacts) -> str | None:
    """Why this table cannot be captured exactly, if so."""
    names = tuple(column["name"] for column in facts.columns)
    if len(names) > MAX_COLUMNS:
        return f"it has {len(names)} columns, more than {MAX_COLUMNS}"
    if not facts.without_rowid and _row_id(names) is None:
        return "its columns hide the row id under all its three names"
    if any(column["name"] is None for _, columns in facts.unique_indexes for column in columns):
        return "it has a unique index on an expression, through which REPLACE removes rows unseen"
    if {column["name"] for _, columns in facts.unique_indexes for column in columns} & set(facts.self_references):
        return "it has a unique column that points to the table itself, ON DELETE SET"
    for name, body in facts.before_triggers:
        if _writes(body, facts.table):
            return f"its own trigger {name} writes to it before the row itself is written"
    return None


def _row_id(names: Iterable[str]) -> str | None:
    taken = {name.lower() for name in names}
    return next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken), None)


def _indexed(columns: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((column["name"] or "an expression", column["coll"]) for column in columns)


def _reals(facts: TableFacts) -> tuple[str, ...]:
    row_id = {column["name"] for column in facts.columns if column["pk"]} if has_fixed_row_ids(facts) else set()
    return tuple(column["name"] for column in facts.columns if column["name"] not in row_id and not _is_text(column["type"]))


def _is_text(declared: str) -> bool:
    """Whether SQLite gives a column declared like this the affinity that turns every number into text."""
    kind = declared.upper()
    return "INT" not in kind and any(word in kind for word in ("CHAR", "CLOB", "TEXT"))


def has_fixed_row_ids(facts: TableFacts) -> bool:
    """Whether the primary key is the row id, so that VACUUM leaves it alone: a lone INTEGER, for which SQLite makes no index."""
    return any(column["pk"] for column in facts.columns) and all(origin != "pk" for origin, _ in facts.unique_indexes)


def _writes(body: str, table: str) -> bool:
    words = body.lower().translate(str.maketrans('"`[];(', "      ")).split()
    verbs = {"into", "update", "ignore", "replace", "abort", "fail", "rollback"}
    return any(word == table.lower() and words[i - 1] in verbs for i, word in enumerate(words) if i)
