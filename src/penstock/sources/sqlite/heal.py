"""Healing: capture is renewed after a change of schema, and the rows that were not recorded exactly are logged again.

The log is never edited. Untrusted rows stay in it, and the present rows follow: `refresh` for a row that exists, `delete` for one
that does not. `_penstock_healing` holds the position up to which this was done; readers pass the untrusted rows before it.
"""

from __future__ import annotations

import os
import sqlite3
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Literal

from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Breach, Captured, Healing, Loss
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.installation import Installation, begun
from penstock.sources.sqlite.schema import Selects
from penstock.sources.sqlite.shape import Shape, TableFacts, refusal
from penstock.sources.sqlite.triggers import TOUCHED, quoted

_PATIENCE = 1.0  # seconds to wait for writers


def heal(path: str, is_meant: Selects, since: int | None) -> None:
    """Heal the tables that lose no changes; `since` is a position at which tables and triggers were sound, if known.

    Other tables stay broken, and so do all tables in a file that this process may not write.
    """
    if not os.access(path, os.W_OK):
        return
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate"):
        work = begun(connection)
        for captured in work.catalogue.live:
            if is_meant(captured.shape.table) and not captured.is_suspended:
                _heal(work, captured, since)


def _heal(work: Installation, captured: Captured, since: int | None) -> None:
    found, facts = work.breaches(captured), work.facts(captured)
    has_writes = wrote(work, captured, since)
    if any(breach.loses(has_writes) for breach in found) or facts is None or refusal(facts):
        return
    names = {column["name"] for column in facts.columns}
    if captured.shape.choice is not None and not (facts.table == captured.shape.table and captured.shape.names <= names):
        return  # a choice is by name: only an operator can choose among the new names
    if found:
        renew(work, captured, found, since)
    elif lacks(work, captured.lineage, "event"):
        refresh(work, captured)


def renew(
    work: Installation, captured: Captured, found: list[Breach], since: int | None = None, choice: str | None = None
) -> Captured | None:
    """Capture a table in its present shape; log a gap where changes are lost. None if the table does not exist."""
    facts = work.facts(captured)
    work.release(captured)
    if facts is None:
        log_gone(work, captured)
        return None
    has_writes = wrote(work, captured, since)
    lost = [breach for breach in found if breach.loses(has_writes)]
    for breach in lost:
        work.gap(captured, breach.what)
    fresh = work.capture(facts, captured.shape.choice if choice is None else choice, captured.lineage)
    if lost:
        log_shape(work, fresh)
    else:
        pairs = zip(captured.shape.columns, fresh.shape.columns, strict=False)
        renamed = {old: new for old, new in pairs if old != new}  # columns keep their places, and new ones come last
        log_shape(work, fresh, facts if fresh.shape.choice == captured.shape.choice else None, renamed)
        refresh(work, fresh, since if any(breach.loss is Loss.ORDER for breach in found) else None)
    return fresh


def log_shape(
    work: Installation, fresh: Captured, altered: TableFacts | None = None, renamed: Mapping[str, str] | None = None
) -> None:
    """Log a schema event if the columns or the key differ; with renamed and added columns if the table was altered in place."""
    was, more = work.catalogue.last(fresh.lineage).shape, {}
    if altered:
        names = fresh.shape.names - was.names - frozenset((renamed or {}).values()) - frozenset(fresh.shape.left_out)
        added = {one["name"]: _default(work.connection, one) for one in altered.columns if one["name"] in names}
        more = {"renamed": renamed or {}, "added": added}
    if was.outline() != fresh.shape.outline():
        work.log_schema(fresh, was, fresh.shape, **{name: what for name, what in more.items() if what})


def _default(connection: sqlite3.Connection, column: Mapping[str, Any]) -> Any:
    """The value of an added column in the rows that existed before: its default, converted as in a column of this type."""
    if column["dflt_value"] is None:
        return None
    connection.execute(f"create temp table penstock_default(a, b {quoted(column['type'])} default ({column['dflt_value']}))")
    connection.execute("insert into temp.penstock_default(a) values(1)")
    [(value,)] = connection.execute("select b from temp.penstock_default").fetchall()
    connection.execute("drop table temp.penstock_default")
    return {"$blob": b64encode(value).decode()} if isinstance(value, bytes) else value


def log_gone(work: Installation, captured: Captured) -> None:
    """Log a schema event without an `after`: all rows are gone with their table, and no change of them is missing."""
    work.log_schema(captured, work.catalogue.last(captured.lineage).shape, None)
    work.run(f"delete from {TOUCHED} where lineage = {captured.lineage}")
    record(work, captured.lineage, whole_upto=work.head())


def wrote(work: Installation, captured: Captured, since: int | None) -> bool | None:
    """Whether the log has rows of this table after a position; None without one."""
    if since is None:
        return None
    numbers = ", ".join(f"{one.number}, {-one.number}" for one in work.lineage(captured.lineage))
    return bool(work.one(f"select exists(select 1 from _penstock_log where seq > {since} and shape in ({numbers}))"))


def lacks(work: Installation, lineage: int, op: Literal["gap", "event"]) -> bool:
    """Whether the log has a gap of this table, or an untrusted event, that no later rows replace."""
    healed = healing(work, lineage)
    return any(not healed.covers(work.doubts.get((one.number, op), 0), op) for one in work.lineage(lineage))


def healing(work: Installation, lineage: int) -> Healing:
    """The healing of a table."""
    return catalog.healings(work.connection).get(lineage, Healing())


def refresh(work: Installation, captured: Captured, since: int | None = None) -> int:
    """Log touched rows again, those of untrusted log rows and of all log rows after a position; return their number."""
    upto = work.head()
    healed = healing(work, captured.lineage).upto
    work.widen(TOUCHED, len(captured.shape.key))
    for known in (one for one in work.lineage(captured.lineage) if len(one.shape.key) == len(captured.shape.key)):
        if work.doubts.get((known.number, "event"), 0) > healed:
            _touch(work, known, f"seq > {healed} and shape = {-known.number}")
        if since is not None:
            _touch(work, known, f"seq > {since} and shape = {known.number}")
    _refresh_touched(work, captured)
    work.run(f"delete from {TOUCHED} where lineage = {captured.lineage}")
    record(work, captured.lineage, rows_upto=upto)
    return work.head() - upto


def record(work: Installation, lineage: int, rows_upto: int = 0, whole_upto: int = 0) -> None:
    """Record the positions up to which readers pass untrusted rows."""
    healed = healing(work, lineage)
    values = f"{lineage}, {max(healed.rows_upto, rows_upto)}, {max(healed.whole_upto, whole_upto)}"
    work.run(f"insert or replace into _penstock_healing values({values})")


def _touch(work: Installation, known: Captured, which: str) -> None:
    """Record the keys of these log rows: columns keep their places while a table is altered."""
    names = ", ".join(["lineage", "row_id", *(f"c{i}" for i in range(len(known.shape.key)))])
    for row_id, columns, ops in sides(known.shape):
        values = ", ".join([str(known.lineage), row_id, *columns])
        work.run(f"insert into {TOUCHED}({names}) select {values} from _penstock_log where {which} and op in ({ops})")


def sides(shape: Shape) -> list[tuple[str, list[str], str]]:
    """The rows in log rows of a shape: the column of the row id, the columns of the key, and the ops."""
    places = [shape.columns.index(name) for name in shape.key]
    first, second = [f"c{place}" for place in places], [f"c{len(shape.columns) + place}" for place in places]
    return [
        ("old_row_id", first, "'update', 'delete'"),
        ("new_row_id", first, "'insert', 'refresh'"),
        ("new_row_id", second, "'update'"),
    ]


def _refresh_touched(work: Installation, captured: Captured) -> None:
    """Deletes first: other rows may have their unique values now."""
    shape, table = captured.shape, quoted(captured.shape.table)
    keys = [f"c{i}" for i in range(len(shape.key))]
    into = "insert into _penstock_log(shape, op, at"
    gone = ", ".join([into, "old_row_id", *keys]) + f") select {work.key_shape(captured)}, 'delete', julianday('now'), "
    gone += ", ".join(["k.row_id", *(f"k.{key}" for key in keys)])
    work.run(f"{gone} from ({_keys(captured)}) k where not exists(select 1 from {table} t where {is_row(shape)})")
    here = ", ".join([into, "new_row_id", *(f"c{i}" for i in range(len(shape.columns)))])
    values = ", ".join([f"t.{shape.row_id}" if shape.row_id else "null", *(f"t.{quoted(name)}" for name in shape.columns)])
    refreshed = f") select {captured.number}, 'refresh', julianday('now'), {values} from ({_keys(captured)}) k cross join {table} t"
    work.run(f"{here}{refreshed} where {is_row(shape)}")


def _keys(captured: Captured) -> str:
    """Every touched key once."""
    keys = [f"c{i}" for i in range(len(captured.shape.key))]
    columns = ", ".join(["max(row_id) as row_id", *keys])
    return f"select {columns} from {TOUCHED} where lineage = {captured.lineage} group by {same_key(keys)}"


def same_key(keys: list[str]) -> str:
    """The expressions that are equal for equal keys: 1 and 1.0 are two keys, and so are rows whose key is NULL."""
    is_null = " or ".join(f"{key} is null" for key in keys) or "1"
    return ", ".join([*keys, *(f"typeof({key})" for key in keys), f"case when {is_null} then row_id end"])


def is_row(shape: Shape) -> str:
    """The condition that `t` is the row of the key `k`: the first comparison uses an index, the others separate 'a' and 'A'."""
    if not shape.key:
        return f"t.{shape.row_id} = k.row_id"
    same = "t.{0} is k.{1} and t.{0} is k.{1} collate binary and typeof(t.{0}) = typeof(k.{1})"
    matches = [same.format(quoted(name), f"c{i}") for i, name in enumerate(shape.key)]
    if shape.row_id:
        full = " and ".join(f"k.c{i} is not null" for i in range(len(shape.key)))
        matches.append(f"({full} or t.{shape.row_id} = k.row_id)")
    return " and ".join(matches)
