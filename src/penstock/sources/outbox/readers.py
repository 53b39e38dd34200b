"""The table of registered pipelines beside an outbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.source import Reader
from penstock.sources.outbox.naming import Names
from penstock.sources.retain import Registration, kept_for

if TYPE_CHECKING:
    import psycopg


def load(connection: psycopg.Connection[Any], names: Names) -> list[Registration]:
    """All who are registered, the furthest behind first."""
    rows = connection.execute(
        "select pipeline, lane, position, extract(epoch from noted_at)::float8,"
        " extract(epoch from clock_timestamp() - noted_at)::float8,"
        f" extract(epoch from history)::float8, released_at is not null from {names.reader} order by position, pipeline".encode()
    )
    return [Registration(*row) for row in rows]


def note(connection: psycopg.Connection[Any], names: Names, one: Registration) -> None:
    """Write down where a pipeline stands; it is registered from then on, also if it was released before."""
    connection.execute(
        f"insert into {names.reader} (pipeline, lane, position, history) values (%s, %s, %s, make_interval(secs => %s))"
        " on conflict (pipeline, lane) do update set position = excluded.position, history = excluded.history,"
        " noted_at = excluded.noted_at, released_at = null".encode(),
        (one.pipeline, one.lane, one.position, one.history),
    )


def release(connection: psycopg.Connection[Any], names: Names, one: Registration) -> bool:
    """Wait for this pipeline no longer, unless it has been noted meanwhile."""
    done = connection.execute(
        f"update {names.reader} set released_at = clock_timestamp() where (pipeline, lane) = (%s, %s)"
        " and extract(epoch from noted_at)::float8 = %s".encode(),
        (one.pipeline, one.lane, one.noted_at),
    )
    return done.rowcount > 0


def shown(one: Registration, everybody: Iterable[Registration], head: int) -> Reader:
    """A registration as the world outside sees it."""
    return Reader(one.pipeline, one.position, one.silent, kept_for(one, everybody, head), one.is_gone, one.is_released)


def forget(connection: psycopg.Connection[Any], names: Names, pipeline: str) -> bool:
    """Strike a pipeline off; False if it was not registered."""
    return connection.execute(f"delete from {names.reader} where pipeline = %s".encode(), (pipeline,)).rowcount > 0
