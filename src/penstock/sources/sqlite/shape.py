"""A table as it is captured: its columns, its key, what must be unique in it. Pure, from the rows of pragmas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.sources.sqlite.expression import expression
from penstock.sources.sqlite.wording import is_literal

MAX_COLUMNS = 990  # two images and a few columns of ours must fit into the 2000 columns of a log row
ROW_IDS_ONLY = "(?!)"
"""The choice of columns that chooses none: the key is always there."""


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns that no two rows may share, each with the collation that decides what is the same."""

    columns: tuple[tuple[str, str], ...]
    is_declared: bool = True  # in the table itself, so that SQLite refuses to drop its columns
    predicate: str = ""  # of a partial index, as SQL
    predicate_columns: tuple[str, ...] = ()  # a change of these alone can put a row into the index


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
    filled: tuple[tuple[str, str | None], ...] = ()  # columns that REPLACE fills in where they are NULL; the literal, if it is one
    computed: tuple[str, ...] = ()  # generated columns that depend on those
    is_circular: bool = False  # the removal of a row can write to the table again, through foreign keys

    @property
    def names(self) -> frozenset[str]:
        """All columns of the table."""
        return frozenset(self.columns + self.left_out)

    @property
    def collisions(self) -> tuple[object, ...]:
        """All that decides which rows a write collides with."""
        return self.uniques, self.filled, self.computed

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
        facts["uniques"] = tuple(_unique(one) for one in facts["uniques"])
        facts |= {"filled": _tuples(facts.get("filled", ())), "computed": tuple(facts.get("computed", ()))}
        facts |= {name: tuple(facts[name]) for name in ("columns", "key", "reals", "left_out")}
        return Shape(**facts)


def _unique(facts: Mapping[str, Any]) -> Unique:
    predicate = facts.get("predicate", ""), tuple(facts.get("predicate_columns", ()))
    return Unique(_tuples(facts["columns"]), facts["is_declared"], *predicate)


def _tuples(pairs: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, other) for name, other in pairs)


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index: its origin ('pk', 'u', 'c'), its rows of `index_xinfo`, its condition and the columns in it."""

    origin: str
    columns: tuple[Mapping[str, Any], ...]
    predicate: str = ""
    predicate_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What SQLite says of a table: rows of `table_xinfo`, and of `index_xinfo` for its unique indexes."""

    table: str
    create_sql: str
    master_row: int  # of sqlite_master
    without_rowid: bool
    columns: tuple[Mapping[str, Any], ...]
    unique_indexes: tuple[UniqueIndex, ...]
    early_writers: tuple[str, ...] = ()  # triggers of the application that write to the table before its row is written
    self_references: tuple[str, ...] = ()  # columns that SQLite sets when the row they point to goes
    is_circular: bool = False


def shape_of(facts: TableFacts, choice: str | None = None) -> Shape:
    """The shape of an ordinary table that `refusal` has nothing against, with the chosen columns."""
    names = tuple(column["name"] for column in facts.columns)
    keyed = sorted((column for column in facts.columns if column["pk"]), key=lambda column: column["pk"])
    indexes = sorted(facts.unique_indexes, key=lambda index: index.origin != "pk")
    uniques = tuple(Unique(_indexed(one.columns), one.origin != "c", one.predicate, one.predicate_columns) for one in indexes)
    row_id = None if facts.without_rowid else _row_id(names)
    key = tuple(column["name"] for column in keyed)
    kept = tuple(name for name in names if name in key or _is_chosen(facts.table, name, choice))
    left_out = tuple(name for name in names if name not in kept)
    filled = _filled(facts, uniques)
    return Shape(
        facts.table, kept, key, row_id, uniques, _reals(facts), facts.create_sql, choice, left_out, *filled, facts.is_circular
    )


def _filled(facts: TableFacts, uniques: Iterable[Unique]) -> tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]]:
    """Columns in which a trigger before the write sees NULL and the row then has the default, as far as unique indexes use them."""
    used = {name for one in uniques for name in (*(name for name, _ in one.columns), *one.predicate_columns)}
    computed = tuple(column["name"] for column in facts.columns if column["hidden"] and column["name"] in used)
    filled = tuple(
        (column["name"], column["dflt_value"] if is_literal(column["dflt_value"]) else None)
        for column in facts.columns
        if column["notnull"] and column["dflt_value"] is not None and (computed or column["name"] in used)
    )
    return filled, computed if filled else ()


def _is_chosen(table: str, column: str, choice: str | None) -> bool:
    return choice is None or expression(choice).fits(f"{table}.{column}")


def refusal(facts: TableFacts) -> str | None:
    """Why this table cannot be captured exactly, if so."""
    names = tuple(column["name"] for column in facts.columns)
    if len(names) > MAX_COLUMNS:
        return f"it has {len(names)} columns, more than {MAX_COLUMNS}"
    if not facts.without_rowid and _row_id(names) is None:
        return "its columns hide the row id under all its three names"
    if any(column["name"] is None for index in facts.unique_indexes for column in index.columns):
        return "it has a unique index on an expression, through which REPLACE removes rows unseen"
    if {column["name"] for index in facts.unique_indexes for column in index.columns} & set(facts.self_references):
        return "it has a unique column that points to the table itself, ON DELETE SET"
    if facts.early_writers:
        return f"its own trigger {facts.early_writers[0]} writes to it before the row itself is written"
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
    return any(column["pk"] for column in facts.columns) and all(index.origin != "pk" for index in facts.unique_indexes)
