"""Stashing: whatever the application writes with, a message is there if and only if its transaction committed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from boxes import Box
from psycopg.errors import CheckViolation
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock.message import Message, of_change
from penstock.outbox import stash, stash_many

MESSAGES = [
    Message("orders", b"1", b'{"id":1}', (("trace", b"abc"), ("trace", None), ("raw", b"\xff\x00"))),
    Message("orders", b"\x00\xff", bytes(range(256))),
    Message("other", None, b""),
    Message("orders", b"1", None, (("why", b"gone"),)),
]


def psycopg_connection(box: Box, messages: list[Message], commits: bool) -> None:
    with psycopg.connect(box.dsn) as connection:
        for one in messages:
            stash(connection, one.topic, one.key, one.value, one.headers, table=box.table)
        stash_many(connection, messages, table=box.table)
        connection.commit() if commits else connection.rollback()


def psycopg_cursor(box: Box, messages: list[Message], commits: bool) -> None:
    with psycopg.connect(box.dsn) as connection, connection.cursor() as cursor:
        for one in messages:
            stash(cursor, one.topic, one.key, one.value, one.headers, table=box.table)
        stash_many(cursor, messages, table=box.table)
        connection.commit() if commits else connection.rollback()


def psycopg_async(box: Box, messages: list[Message], commits: bool) -> None:
    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(box.dsn) as connection:
            await _all(connection, box, messages)
            await (connection.commit() if commits else connection.rollback())

    asyncio.run(write())


def psycopg_async_cursor(box: Box, messages: list[Message], commits: bool) -> None:
    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(box.dsn) as connection, connection.cursor() as cursor:
            await _all(cursor, box, messages)
            await (connection.commit() if commits else connection.rollback())

    asyncio.run(write())


def sqlalchemy_async_session(box: Box, messages: list[Message], commits: bool) -> None:
    """As FastAPI has it: a session for each request, and `async with session.begin()`."""

    async def write() -> None:
        engine = create_async_engine(_url(box), poolclass=sqlalchemy.NullPool)
        async with AsyncSession(engine) as session:
            await session.execute(sqlalchemy.text("select 1"))
            await _all(session, box, messages)
            await (session.commit() if commits else session.rollback())
        await engine.dispose()

    asyncio.run(write())


def sqlalchemy_async_connection(box: Box, messages: list[Message], commits: bool) -> None:
    async def write() -> None:
        engine = create_async_engine(_url(box), poolclass=sqlalchemy.NullPool)
        async with engine.connect() as connection:
            await _all(connection, box, messages)
            await (connection.commit() if commits else connection.rollback())
        await engine.dispose()

    asyncio.run(write())


async def _all(connection: Any, box: Box, messages: list[Message]) -> None:
    for one in messages:
        await _awaitable(stash(connection, one.topic, one.key, one.value, one.headers, table=box.table))
    await _awaitable(stash_many(connection, messages, table=box.table))


def _awaitable(made: Awaitable[None] | None) -> Awaitable[None]:
    assert made is not None, "what is not awaited would not be written"
    return made


def _url(box: Box) -> str:
    return box.dsn.replace("postgresql://", "postgresql+psycopg://")


def _engine(box: Box) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(_url(box), poolclass=sqlalchemy.NullPool)


def sqlalchemy_session(box: Box, messages: list[Message], commits: bool) -> None:
    with Session(_engine(box)) as session:
        for one in messages:
            stash(session, one.topic, one.key, one.value, one.headers, table=box.table)
        stash_many(session, messages, table=box.table)
        session.commit() if commits else session.rollback()


def sqlalchemy_connection(box: Box, messages: list[Message], commits: bool) -> None:
    with _engine(box).connect() as connection:
        for one in messages:
            stash(connection, one.topic, one.key, one.value, one.headers, table=box.table)
        stash_many(connection, messages, table=box.table)
        connection.commit() if commits else connection.rollback()


def django_connection(box: Box, messages: list[Message], commits: bool) -> None:
    import django
    from django.conf import settings
    from django.db.backends.postgresql.base import DatabaseWrapper

    if not settings.configured:
        settings.configure()
        django.setup()
    info = psycopg.conninfo.conninfo_to_dict(box.dsn)
    names = {"NAME": info["dbname"], "USER": info["user"], "PASSWORD": info["password"], "HOST": info["host"], "PORT": info["port"]}
    plain = {"OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "AUTOCOMMIT": True}
    connection: Any = DatabaseWrapper(names | plain | {"ATOMIC_REQUESTS": False})
    connection.set_autocommit(False)
    for one in messages:
        stash(connection, one.topic, one.key, one.value, one.headers, table=box.table)
    stash_many(connection, messages, table=box.table)
    connection.commit() if commits else connection.rollback()
    connection.close()


class PlainDriver:
    """Any DB-API driver: nothing but `cursor`, `execute`, `executemany` and `close`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cursor(self) -> Any:
        return self._connection.cursor()


def plain_dbapi(box: Box, messages: list[Message], commits: bool) -> None:
    with psycopg.connect(box.dsn) as connection:
        driver = PlainDriver(connection)
        for one in messages:
            stash(driver, one.topic, one.key, one.value, one.headers, table=box.table)
        stash_many(driver, messages, table=box.table)
        connection.commit() if commits else connection.rollback()


WAYS = [
    psycopg_connection,
    psycopg_cursor,
    psycopg_async,
    psycopg_async_cursor,
    sqlalchemy_session,
    sqlalchemy_connection,
    sqlalchemy_async_session,
    sqlalchemy_async_connection,
    django_connection,
    plain_dbapi,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_committed_arrives_byte_for_byte_and_what_is_rolled_back_never_was(
    box: Box, way: Callable[[Box, list[Message], bool], None]
) -> None:
    way(box, MESSAGES, True)
    way(box, MESSAGES, False)
    assert [of_change(change) for change in box.changes()] == MESSAGES * 2


def test_text_mappings_and_lists_are_welcome(box: Box) -> None:
    with psycopg.connect(box.dsn) as connection:
        stash(connection, "t", "kéy", "válue", {"a": "ä", "b": None}, table=box.table)
        stash(connection, "t", bytearray(b"k"), {"id": 1, "name": "ö"}, table=box.table)
        stash(connection, "t", memoryview(b"k"), [1, None], table=box.table)
        stash_many(connection, [("t", "k", "v"), ("t", "k", None, {"h": "x"})], table=box.table)
        stash_many(connection, [], table=box.table)
    found = [of_change(change) for change in box.changes()]
    assert found[0] == Message("t", "kéy".encode(), "válue".encode(), (("a", "ä".encode()), ("b", None)))
    assert [one.value for one in found[1:] if one] == ['{"id":1,"name":"ö"}'.encode(), b"[1,null]", b"v", None]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (("", "k", "v"), ValueError),
        (("t", 42, "v"), TypeError),
        (("t", "k", 42), TypeError),
        (("t", "k", "v", {"h": 1}), TypeError),
        (("t", "k", "v", [(1, b"")]), TypeError),
    ],
)
def test_what_is_no_message_is_refused_before_anything_is_written(box: Box, message: Any, error: type[Exception]) -> None:
    with psycopg.connect(box.dsn) as connection:
        with pytest.raises(error):
            stash_many(connection, [("t", "k", "v"), message], table=box.table)
        assert connection.info.transaction_status.name == "IDLE"


def test_any_language_can_insert_with_plain_sql(box: Box) -> None:
    box.execute("insert into {} (topic, key, value) values ('orders', '42', convert_to('{\"text\": \"a\\nb\"}', 'UTF8'))")
    [message] = [of_change(change) for change in box.changes()]
    assert message
    assert json.loads(message.value or b"") == {"text": "a\nb"}


def test_headers_without_a_value_each_are_refused_or_told(box: Box) -> None:
    unequal = "insert into {} (topic, value, header_keys, header_values) values ('t', 'v', array['a'], array['x', 'y']::bytea[])"
    with pytest.raises(CheckViolation):
        box.execute(unequal)
    box.execute(f"alter table {{}} drop constraint {box.table}_headers_check")
    box.execute(unequal)
    box.commit("next")
    bad, good = box.changes()
    assert bad.error == "unequal number of header keys (1) and values (2)"
    assert good.error is None


def test_an_application_that_stashes_loads_nothing_heavy() -> None:
    import subprocess

    script = "import sys, penstock.outbox; print(*sorted({'pyspark', 'pyarrow', 'psycopg', 'sqlalchemy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_message_tells_when_it_was_stashed_to_the_microsecond(box: Box) -> None:
    box.execute(
        "insert into {} (topic, created_at) values ('t', '2026-01-02 03:04:05.678901+00'), ('t', 'infinity'), ('t', '-infinity')"
    )
    exact, last, first = (change.at for change in box.changes())
    assert exact == 1767323045_678901
    assert first == 0
    assert last == 253402214400_000000
