"""The table of registered pipelines of an outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import OutboxUnfit
from penstock.owner import Owner, is_anothers, refuse_another
from penstock.sources.outbox import schema
from penstock.sources.outbox.database import Connection, driver
from penstock.sources.outbox.naming import Names
from penstock.sources.retain import Registration


def load(connection: Connection, names: Names) -> list[Registration]:
    """All registrations, the lowest position first."""
    rows = connection.execute(
        "select pipeline, lane, position, extract(epoch from noted_at)::float8,"
        " extract(epoch from clock_timestamp() - noted_at)::float8,"
        f" extract(epoch from history)::float8, released_at is not null, {_OWNER} from {names.reader} reader"
        " order by position, pipeline".encode()
    )
    return [replace(Registration(*known), owner=_owner(owner)) for *known, owner in rows]


def _owner(facts: Sequence[str | None]) -> Owner | None:
    identity, state, process = facts
    return Owner(identity, state or "", process or "") if identity else None


_OWNER = "array[" + ", ".join(f"to_jsonb(reader)->>'{column}'" for column in schema.OWNER) + "]"
"""Null in a table of an earlier version, which lacks these columns."""
_OWNED = "reader.owner is not distinct from excluded.owner or reader.owner is null or reader.released_at is not null"


def note(connection: Connection, names: Names, one: Registration) -> None:
    """Write a registration, also one that was released. Raises SourceOwned."""
    _complete(connection, names)
    columns = ", ".join(schema.OWNER)
    done = connection.execute(
        f"insert into {names.reader} as reader (pipeline, lane, position, history, {columns})"
        " values (%s, %s, %s, make_interval(secs => %s), %s, %s, %s)"
        " on conflict (pipeline, lane) do update set position = excluded.position, history = excluded.history,"
        " noted_at = excluded.noted_at, released_at = null, owner = excluded.owner, owner_state = excluded.owner_state,"
        f" owner_process = excluded.owner_process where {_OWNED}".encode(),
        (one.pipeline, one.lane, one.position, one.history, *_facts(one.owner)),
    )
    if not done.rowcount:  # it was handed over meanwhile
        refuse_another(_known(connection, names, one.pipeline), one.owner)


def _facts(owner: Owner | None) -> tuple[str | None, ...]:
    return (owner.identity, owner.state, owner.process) if owner else (None, None, None)


def _known(connection: Connection, names: Names, pipeline: str) -> Registration | None:
    return next((one for one in load(connection, names) if one.pipeline == pipeline), None)


def _complete(connection: Connection, names: Names) -> None:
    """Add the columns that an outbox of an earlier version lacks. Raises OutboxUnfit if this role may not alter the table."""
    has_owner = "select 1 from pg_attribute where attrelid = %s::regclass and attname = 'owner' and not attisdropped"
    if connection.execute(has_owner.encode(), (names.reader,)).fetchone():
        return
    try:
        with connection.transaction():
            connection.execute(schema.owners(names).encode())
    except driver().errors.InsufficientPrivilege as error:
        raise OutboxUnfit(
            f"{names.reader} was created by an earlier version, and this role may not alter it",
            f"run once as the owner of the tables: {names.init()}",
        ) from error


def release(connection: Connection, names: Names, one: Registration) -> bool:
    """Release a registration, unless it was noted meanwhile; return whether it was released."""
    done = connection.execute(
        f"update {names.reader} set released_at = clock_timestamp() where (pipeline, lane) = (%s, %s)"
        " and extract(epoch from noted_at)::float8 = %s".encode(),
        (one.pipeline, one.lane, one.noted_at),
    )
    return done.rowcount > 0


def forget(connection: Connection, names: Names, pipeline: str, owner: Owner | None = None) -> bool:
    """Remove a registration, or hand it over to this owner; False if there is none."""
    if owner and is_anothers(_known(connection, names, pipeline), owner):
        _complete(connection, names)
        given = f"update {names.reader} set owner = %s, owner_state = %s, owner_process = %s, noted_at = clock_timestamp()"
        return connection.execute(f"{given} where pipeline = %s".encode(), (*_facts(owner), pipeline)).rowcount > 0
    return connection.execute(f"delete from {names.reader} where pipeline = %s".encode(), (pipeline,)).rowcount > 0
