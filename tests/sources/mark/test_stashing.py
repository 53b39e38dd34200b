"""Stashing into goharvest's table, in every database and through whatever an application writes with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from desks import Desk
from sqlalchemy.orm import Session

from facts import row_id
from penstock.message import Message, of_change
from penstock.outbox import quoted, stash, stash_many

MESSAGES = [
    Message("orders", "clé".encode(), b'{"id":1}', (("trace", "ß".encode()), ("trace", None), ("q", b'"\\'))),
    Message("orders", b"1", b""),
    Message("other", b"1", None, (("why", b"gone"),)),
]


@contextmanager
def native(desk: Desk) -> Iterator[tuple[Any, Any]]:
    with closing(desk.connect()) as connection:
        yield connection, connection


@contextmanager
def cursor(desk: Desk) -> Iterator[tuple[Any, Any]]:
    with closing(desk.connect()) as connection, closing(connection.cursor()) as opened:
        yield opened, connection


@contextmanager
def alchemy(desk: Desk) -> Iterator[tuple[Any, Any]]:
    scheme = {"postgresql": "postgresql+psycopg://", "sqlite": "sqlite://", "mysql": "mysql+pymysql://"}[kind_of(desk)]
    engine = sqlalchemy.create_engine(scheme, creator=desk.connect, poolclass=sqlalchemy.NullPool)
    with Session(engine) as session:
        yield session, session


def kind_of(desk: Desk) -> str:
    return "postgresql" if desk.is_postgres else "sqlite" if desk.is_sqlite else "mysql"


@pytest.mark.parametrize("way", [native, cursor, alchemy], ids=lambda way: way.__name__)
def test_what_is_stashed_for_goharvest_arrives_and_what_is_rolled_back_never_was(desk: Desk, way: Any) -> None:
    for deed in ("commit", "rollback"):
        with way(desk) as (connection, owner):
            for one in MESSAGES:
                stash(connection, one.topic, one.key, one.value, one.headers, table=desk.table, layout="goharvest")
            stash_many(connection, MESSAGES, table=desk.table, layout="goharvest")
            stash_many(connection, [], table=desk.table, layout="goharvest")
            getattr(owner, deed)()
    found = desk.reader(1).changes(6)
    assert [of_change(change) for change in found] == MESSAGES * 2
    assert all(change.at > 1_700_000_000_000_000 for change in found)


@pytest.mark.parametrize("message", [("t", None, "v"), ("t", b"\xff", "v"), ("t", "k", b"\xff"), ("t", "k", "v", {"h": b"\xff"})])
def test_what_goharvests_table_cannot_hold_is_refused_before_anything_is_written(desk: Desk, message: Any) -> None:
    with native(desk) as (connection, _):
        with pytest.raises(ValueError, match="the table of goharvest"):
            stash_many(connection, [("t", "k", "v"), message], table=desk.table, layout="goharvest")
        connection.commit()
    assert desk.marks() == {}


def test_a_layout_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="choose penstock or goharvest"):
        stash(None, "t", "k", "v", layout="debezium")  # type: ignore[arg-type]


def test_djangos_own_connections_say_which_database_it_is(tmp_path: Path) -> None:
    import django
    from django.conf import settings
    from django.db.backends.sqlite3.base import DatabaseWrapper

    if not settings.configured:
        settings.configure()
        django.setup()
    file = str(tmp_path / "app.db")
    desk = Desk(file, lambda: sqlite3.connect(file), "?")
    plain = {"OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "AUTOCOMMIT": True}
    connection: Any = DatabaseWrapper({"NAME": file, **plain, "ATOMIC_REQUESTS": False})
    with closing(connection):
        stash(connection, "orders", "1", "a", {"trace": "x"}, table=desk.table, layout="goharvest")
        with connection.cursor() as opened:
            stash_many(opened, MESSAGES, table=desk.table, layout="goharvest")
    assert [row_id(change) for change in desk.reader(1).changes(4)] == [1, 2, 3, 4]


def test_the_name_of_a_table_is_that_name_whatever_is_in_it() -> None:
    assert quoted('a"b.c') == '"a""b"."c"'
    assert quoted("a`b.c", "`") == "`a``b`.`c`"
