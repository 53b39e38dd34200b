"""Writers that say where a transaction begins and ends: its changes share a number, and nobody else's do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay import connect, logged, source_of
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import penstock
from deadline import PATIENCE
from examples import examples
from penstock.sources.sqlite.source import LANE


def numbers(path: Path) -> list[int | None]:
    return [change.transaction for change in logged(path)]


def put(connection: sqlite3.Connection, rows: int = 1) -> None:
    for _ in range(rows):
        connection.execute("insert into orders(total) values(1)")


@pytest.fixture(params=["autocommit", "implicit"])
def connection(writer: sqlite3.Connection, path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """A connection of either kind: statements commit by themselves, or open a transaction that somebody has to commit."""
    level = {"isolation_level": None} if request.param == "autocommit" else {}
    with closing(sqlite3.connect(path, timeout=PATIENCE, **level)) as made:
        yield made


def test_changes_of_a_block_share_a_number_and_others_have_none(connection: sqlite3.Connection, path: Path) -> None:
    put(connection)
    connection.commit()
    with penstock.transaction(connection) as number:
        put(connection, 3)
    put(connection)
    connection.commit()
    with penstock.transaction(connection) as second:
        put(connection, 2)
    assert numbers(path) == [None, *[number] * 3, None, *[second] * 2]
    assert number == 2  # the position of its first change
    assert not connection.in_transaction


def test_the_number_grows_also_for_blocks_that_change_nothing_else(connection: sqlite3.Connection) -> None:
    given = []
    for rows in (1, 0, 2, 1):
        with penstock.transaction(connection) as number:
            put(connection, rows)
        given.append(number)
    assert given == [1, 2, 2, 4]


def test_a_block_that_fails_is_rolled_back_and_leaves_nothing(connection: sqlite3.Connection, path: Path) -> None:
    with suppress(ZeroDivisionError), penstock.transaction(connection):
        put(connection)
        raise ZeroDivisionError
    assert not connection.in_transaction
    put(connection)
    connection.commit()
    assert numbers(path) == [None]


def test_a_transaction_begun_outside_stays_with_whoever_began_it(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("begin")
    put(connection)
    with penstock.transaction(connection) as number:
        put(connection, 2)
    put(connection)
    assert connection.in_transaction
    connection.execute("commit")
    assert numbers(path) == [None, number, number, None]
    connection.execute("begin")
    with penstock.transaction(connection):
        put(connection)
    connection.execute("rollback")
    assert len(numbers(path)) == 4


def test_a_failed_block_in_a_transaction_that_goes_on_leaves_no_number_behind(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("begin")
    with suppress(ZeroDivisionError), penstock.transaction(connection):
        put(connection)
        raise ZeroDivisionError
    put(connection)
    connection.execute("commit")
    assert numbers(path) == [1, None]


def test_a_block_inside_a_block_belongs_to_the_outer_one(connection: sqlite3.Connection, path: Path) -> None:
    with penstock.transaction(connection) as outer:
        put(connection)
        with penstock.transaction(connection) as inner:
            put(connection)
        put(connection)
        with suppress(ZeroDivisionError), penstock.transaction(connection):
            raise ZeroDivisionError
        put(connection)
    assert inner == outer
    assert numbers(path) == [outer] * 4


def test_a_commit_inside_the_block_ends_its_number_with_the_block(connection: sqlite3.Connection, path: Path) -> None:
    with penstock.transaction(connection):
        put(connection)
        connection.commit()
    put(connection)
    connection.commit()
    assert numbers(path)[-1] is None
    assert not connection.in_transaction


def test_what_a_forgetful_writer_left_is_cleared_by_the_next_block(connection: sqlite3.Connection, path: Path) -> None:
    with closing(connect(path)) as forgetful:
        forgetful.execute("begin immediate")
        forgetful.execute("insert into _penstock_tx(number) select coalesce(max(seq), 0) + 1 from _penstock_log")
        put(forgetful)
        forgetful.execute("commit")
    with penstock.transaction(connection) as number:
        put(connection)
    put(connection)
    connection.commit()
    assert numbers(path) == [1, number, None]
    assert number == 2


def test_plain_sql_does_the_same(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("""
        begin immediate;
        delete from _penstock_tx;
        insert into _penstock_tx(number) select coalesce(max(seq), 0) + 1 from _penstock_log;
        insert into orders(total) values(1);
        update orders set total = 2;
        delete from _penstock_tx;
        commit;
    """)
    assert numbers(path) == [1, 1]


def test_settling_clears_what_a_forgetful_writer_left(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into _penstock_tx(number) values(1)")
    put(writer)
    source_of(path).retention.settle("orders", LANE, source_of(path).head(LANE))
    put(writer)
    assert numbers(path)[-1] is None


def test_without_capture_a_block_is_a_plain_transaction(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "plain.db", isolation_level=None)) as connection:
        connection.execute("create table orders(total)")
        with penstock.transaction(connection) as number:
            put(connection)
        with suppress(ZeroDivisionError), penstock.transaction(connection):
            put(connection)
            raise ZeroDivisionError
        assert number is None
        assert connection.execute("select count(*) from orders").fetchone() == (1,)


def test_rows_of_any_factory_do(connection: sqlite3.Connection, path: Path) -> None:
    connection.row_factory = lambda cursor, row: {"never": "mind"}
    with penstock.transaction(connection):
        put(connection)
    assert numbers(path) == [1]


def test_connections_and_sessions_of_sqlalchemy_are_taken_and_commit_by_themselves(writer: sqlite3.Connection, path: Path) -> None:
    engine, insert = create_engine(f"sqlite:///{path}"), text("insert into orders(total) values(1)")
    with engine.begin() as connection, penstock.transaction(connection):
        connection.execute(insert)
        connection.execute(insert)
    with Session(engine) as session, penstock.transaction(session):
        session.execute(insert)
        session.rollback()
    with suppress(ZeroDivisionError), Session(engine) as session, session.begin(), penstock.transaction(session):
        session.execute(insert)
        raise ZeroDivisionError
    with Session(engine) as session:
        with penstock.transaction(session):
            session.execute(insert)
        session.execute(insert)
        session.commit()
    engine.dispose()
    assert numbers(path) == [1, 1, 3, None]
    assert writer.execute("select count(*) from _penstock_tx").fetchone() == (0,)


DJANGO = """
import sys, django, penstock
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
django.setup()
from django.db import connection, transaction
def put():
    with connection.cursor() as cursor:
        cursor.execute("insert into orders(total) values(%s)", [1])
with transaction.atomic(), penstock.transaction(connection):
    put()
    put()
try:
    with transaction.atomic(), penstock.transaction(connection):
        put()
        raise ZeroDivisionError
except ZeroDivisionError:
    put()
try:
    with penstock.transaction(connection):
        put()
except ValueError:
    put()
"""


@pytest.mark.usefixtures("writer")
def test_djangos_connection_is_taken_inside_atomic(path: Path) -> None:
    subprocess.run([sys.executable, "-c", DJANGO, str(path)], check=True, timeout=PATIENCE)
    assert numbers(path) == [1, 1, None, None]


def test_a_wrapper_in_autocommit_is_told_to_begin(writer: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(ValueError, match="begin a transaction first"), penstock.transaction(SimpleNamespace(connection=writer)):
        put(writer)
    put(writer)
    assert numbers(path) == [None]


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(TypeError, match="not an open connection to SQLite"), penstock.transaction(SimpleNamespace(connection=None)):
        pass


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=12))
def test_whatever_is_mixed_exactly_the_changes_of_one_block_share_its_number(
    writer: sqlite3.Connection, path: Path, steps: list[tuple[bool, int, bool]]
) -> None:
    expected: list[int | None] = numbers(path)
    for is_block, rows, fails in steps:
        first = len(expected) + 1
        if not is_block:
            put(writer, rows)
            expected += [None] * rows
            continue
        with suppress(ZeroDivisionError), penstock.transaction(writer) as number:
            put(writer, rows)
            1 / (not fails)
        assert number == first
        expected += [] if fails else [number] * rows
    assert numbers(path) == expected
