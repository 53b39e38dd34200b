"""The table of registered pipelines in a captured database."""

from __future__ import annotations

import json
import sqlite3

from penstock.owner import Owner, is_anothers, refuse_another
from penstock.source import Reader
from penstock.sources.retain import Registration

_DAY = 86400.0
_OWNER = "owner/"  # prefix of the pipeline in the names of `_penstock_meta`


def load(connection: sqlite3.Connection) -> list[Registration]:
    """All registrations, the lowest position first."""
    rows = connection.execute(
        f"select pipeline, lane, position, noted_at, (julianday('now') - noted_at) * {_DAY}, history * {_DAY},"
        " released_at is not null from _penstock_reader order by position, pipeline"
    )
    owners = _owners(connection)
    return [
        Registration(pipeline, lane, position, noted_at, silent, history, bool(is_released), owners.get(pipeline))
        for pipeline, lane, position, noted_at, silent, history, is_released in rows
    ]


def note(connection: sqlite3.Connection, now: Registration) -> None:
    """Write a registration, also one that was released. Raises SourceOwned."""
    refuse_another(_known(connection, now.pipeline), now.owner)
    connection.execute(
        "insert into _penstock_reader values(?, ?, ?, ?, julianday('now'), julianday('now'), null) on conflict do update set"
        " position = excluded.position, history = excluded.history, noted_at = excluded.noted_at, released_at = null",
        (now.pipeline, now.lane, now.position, now.history / _DAY),
    )
    _own(connection, now.pipeline, now.owner)


def _own(connection: sqlite3.Connection, pipeline: str, owner: Owner | None) -> None:
    """Write the owner, in an existing table: a change of the schema would end a snapshot that is read."""
    name = _OWNER + pipeline
    if owner:
        facts = (owner.identity, owner.state, owner.process, _births(connection)[pipeline])
        connection.execute("insert or replace into _penstock_meta values(?, ?)", (name, json.dumps(facts)))
    else:
        connection.execute("delete from _penstock_meta where name = ?", (name,))


def _owners(connection: sqlite3.Connection) -> dict[str, Owner]:
    """Owners by pipeline, except of a registration that an earlier version has renewed since."""
    meta, found = dict(connection.execute("select name, value from _penstock_meta")), dict[str, Owner]()
    for pipeline, born in _births(connection).items():
        if value := meta.get(_OWNER + pipeline):
            *facts, known = json.loads(value)
            found |= {pipeline: Owner(*facts)} if known == born else {}
    return found


def _births(connection: sqlite3.Connection) -> dict[str, int]:
    sql = f"select pipeline, cast(min(registered_at) * {_DAY} * 1000 as integer) from _penstock_reader group by pipeline"
    return dict(connection.execute(sql))


def _known(connection: sqlite3.Connection, pipeline: str) -> Registration | None:
    return next((one for one in load(connection) if one.pipeline == pipeline), None)


def release(connection: sqlite3.Connection, one: Registration) -> bool:
    """Release a registration, unless it was noted meanwhile; return whether it was released."""
    sql = "update _penstock_reader set released_at = julianday('now') where (pipeline, lane, noted_at) = (?, ?, ?)"
    return connection.execute(sql, (one.pipeline, one.lane, one.noted_at)).rowcount > 0


def lowest(connection: sqlite3.Connection) -> int:
    """The position from which the log is kept."""
    [(position,)] = connection.execute("select min(position) from _penstock_reader where released_at is null")
    return int(position)


def seen(connection: sqlite3.Connection) -> list[Reader]:
    """All registered pipelines, as the contract shows them."""
    known = load(connection)
    [(head,)] = connection.execute("select coalesce(max(seq), 0) from _penstock_log")
    return [one.shown(known, head) for one in known]


def forget(connection: sqlite3.Connection, pipeline: str, owner: Owner | None = None) -> bool:
    """Remove a pipeline on all lanes, or hand it over to this owner; False if it is not registered."""
    if owner and is_anothers(_known(connection, pipeline), owner):
        _own(connection, pipeline, owner)
        connection.execute("update _penstock_reader set noted_at = julianday('now') where pipeline = ?", (pipeline,))
        return True
    _own(connection, pipeline, None)
    return connection.execute("delete from _penstock_reader where pipeline = ?", (pipeline,)).rowcount > 0
