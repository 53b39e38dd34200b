"""The table of registered pipelines in a captured database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from penstock.change import Lane
from penstock.source import Reader
from penstock.sources.retain import Registration, kept_for
from penstock.sources.sqlite.database import opened, transaction

_DAY = 86400.0
_PATIENCE = 5.0  # seconds to wait for writers


def load(connection: sqlite3.Connection) -> list[Registration]:
    """All who are registered, the furthest behind first."""
    rows = connection.execute(
        f"select pipeline, lane, position, noted_at, (julianday('now') - noted_at) * {_DAY}, history * {_DAY},"
        " released_at is not null from _penstock_reader order by position, pipeline"
    )
    return [
        Registration(pipeline, lane, position, noted_at, silent, history, bool(is_released))
        for pipeline, lane, position, noted_at, silent, history, is_released in rows
    ]


def note(connection: sqlite3.Connection, pipeline: str, lane: Lane, position: int, history: float = 0.0) -> None:
    """Write down where a pipeline stands; it is registered from then on, also if it was released before."""
    connection.execute(
        "insert into _penstock_reader values(?, ?, ?, ?, julianday('now'), julianday('now'), null) on conflict do update set"
        " position = excluded.position, history = excluded.history, noted_at = excluded.noted_at, released_at = null",
        (pipeline, lane, position, history / _DAY),
    )


def release(connection: sqlite3.Connection, one: Registration) -> bool:
    """Wait for this pipeline no longer, unless it has been noted meanwhile."""
    sql = "update _penstock_reader set released_at = julianday('now') where (pipeline, lane, noted_at) = (?, ?, ?)"
    return connection.execute(sql, (one.pipeline, one.lane, one.noted_at)).rowcount > 0


def lowest(connection: sqlite3.Connection) -> int:
    """The position that the log is kept from."""
    [(position,)] = connection.execute("select min(position) from _penstock_reader where released_at is null")
    return int(position)


def shown(one: Registration, everybody: Iterable[Registration], head: int) -> Reader:
    """A registration as the world outside sees it."""
    return Reader(one.pipeline, one.position, one.silent, kept_for(one, everybody, head), one.is_gone, one.is_released)


def everybody(path: str) -> list[Reader]:
    """All who are registered."""
    with opened(path) as connection, transaction(connection):
        return seen(connection)


def seen(connection: sqlite3.Connection) -> list[Reader]:
    """All who are registered, in the transaction that is open."""
    known = load(connection)
    [(head,)] = connection.execute("select coalesce(max(seq), 0) from _penstock_log")
    return [shown(one, known, head) for one in known]


def registered(path: str, pipeline: str, lane: Lane) -> int | None:
    """The position noted for a pipeline, also for one that was released."""
    with opened(path) as connection:
        return next((one.position for one in load(connection) if (one.pipeline, one.lane) == (pipeline, lane)), None)


def forget(path: str, pipeline: str) -> bool:
    """Strike a pipeline off, on all its lanes; False if it was not registered."""
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate"):
        return connection.execute("delete from _penstock_reader where pipeline = ?", (pipeline,)).rowcount > 0
