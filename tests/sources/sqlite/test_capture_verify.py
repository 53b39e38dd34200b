"""`capture verify`: tables against the log, where nothing else shows that rows were written without triggers."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import connect
from test_capture_histories import SCHEMAS, statement
from typer.testing import CliRunner

from examples import examples
from penstock.capture import Comparison
from penstock.cli.capture import app
from penstock.errors import ConfigInvalid
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.suspend import resume, suspend
from penstock.sources.sqlite.verify import verify


@contextmanager
def without_triggers(path: Path) -> Iterator[sqlite3.Connection]:
    """A writer whose triggers do not fire; Python cannot switch them off, so they are away from the schema in the meantime."""
    with closing(connect(path)) as connection:
        taken = connection.execute(
            "select rowid, * from sqlite_master where name like '~_penstock~_%~_%' escape '~' and type in ('trigger', 'view')"
        )
        rows = taken.fetchall()
        connection.execute("pragma writable_schema = on")
        connection.execute("delete from sqlite_master where type = 'trigger' and name like '~_penstock~_%' escape '~'")
        connection.execute("pragma writable_schema = reset")
    with closing(connect(path)) as connection:
        yield connection
    with closing(connect(path)) as connection:
        connection.execute("pragma writable_schema = on")
        for row in rows:
            if row[1] == "trigger":
                connection.execute(
                    "insert into sqlite_master(rowid, type, name, tbl_name, rootpage, sql) values(?, ?, ?, ?, ?, ?)", row
                )
        connection.execute("pragma writable_schema = reset")


def found(path: Path, table: str = "orders") -> Comparison:
    [verdict] = verify(str(path), table).tables
    return verdict


def told(path: Path, table: str = "orders") -> list[tuple[str, str, str | None]]:
    return [(one.key, one.what, one.column) for one in found(path, table).differences]


def test_a_table_that_the_log_gives_is_equal(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("insert into orders values(1, 'x', 1), (2, 'y', 2.5), (3, null, x'00'); delete from orders where id = 2")
    writer.execute("update orders set id = 7 where id = 1")
    verdict = found(path)
    assert (verdict.is_equal, verdict.compared, verdict.differing, verdict.unmentioned) == (True, 4, 0, 0)


def test_rows_that_were_written_without_triggers_are_named(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'x', 1), (2, 'y', 2), (3, 'z', 3), (4, 'gone', 4), (5, 'same', 5)")
    writer.execute("delete from orders where id = 4")
    with without_triggers(path) as other:
        other.executescript("update orders set total = 1.0 where id = 1; delete from orders where id = 2")
        other.executescript("update orders set status = 'Z' where id = 3; insert into orders values(4, 'back', 4), (6, 'new', 6)")
    assert told(path) == [
        ('{"id":1}', "differs", "total"),
        ('{"id":2}', "is not in the table", None),
        ('{"id":3}', "differs", "status"),
        ('{"id":4}', "is in the table, and deleted in the log", None),
    ]
    assert found(path).unmentioned == 1
    repair(str(path), "orders")
    assert (found(path).is_equal, found(path).is_whole) == (True, True)


def test_a_table_that_was_rescanned_has_no_row_beside_the_log(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'x', 1)")
    repair(str(path), "orders")
    with without_triggers(path) as other:
        other.execute("insert into orders values(2, 'y', 2)")
        other.execute("insert into items values(1, 2, 'three')")
    assert told(path) == [('{"id":2}', "is in the table, and not in the log", None)]
    assert (found(path, "items").is_equal, found(path, "items").unmentioned) == (True, 1)


def test_rows_from_before_capture_are_not_judged(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.executescript("create table orders(id integer primary key, a); insert into orders values(1, 1), (2, 2)")
        enable(str(path))
        writer.execute("insert into orders values(3, 3)")
    assert (found(path).is_equal, found(path).compared, found(path).unmentioned) == (True, 1, 2)


def test_a_table_that_was_altered_is_compared_by_the_names_it_has_now(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'x', 1), (2, 'y', 2)")
    writer.executescript("alter table orders rename column status to state; alter table orders add column extra default 5")
    assert found(path).state == "broken"
    assert found(path).is_equal
    enable(str(path))
    with without_triggers(path) as other:
        other.execute("update orders set state = 'z' where id = 2")
    assert told(path) == [('{"id":2}', "differs", "state")]


def test_rows_that_were_touched_while_suspended_are_not_judged(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'x', 1), (2, 'y', 2)")
    suspend(str(path), "orders")
    writer.execute("update orders set status = 'z' where id = 2")
    verdict = found(path)
    assert (verdict.state, verdict.compared, verdict.differing, verdict.unjudged) == ("suspended", 1, 0, 1)
    resume(str(path))
    assert (found(path).compared, found(path).unjudged) == (2, 0)


def test_a_table_that_is_not_there_or_has_another_key_is_not_comparable(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript(
        "drop table items; create table o2(nr integer primary key); drop table orders; alter table o2 rename to orders"
    )
    assert [(one.state, one.is_equal) for one in verify(str(path)).tables] == [("not comparable", False)] * 2


def test_a_sample_looks_at_so_many_keys(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders(id) values(?)", [(i,) for i in range(50)])
    [verdict] = verify(str(path), "orders", 7).tables
    assert (verdict.compared, verdict.unmentioned, verdict.is_equal) == (7, None, True)


def test_only_the_first_differences_are_listed_and_all_are_counted(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders(id) values(?)", [(i,) for i in range(50)])
    with without_triggers(path) as other:
        other.execute("update orders set total = 1")
    assert (len(found(path).differences), found(path).differing, told(path)[0][0]) == (20, 50, '{"id":0}')


def test_a_table_that_nobody_captures_is_named(writer: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such table"):
        verify(str(path), "other")


def test_a_key_that_is_not_utf8_is_named(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into items values(cast(x'ff' as text), 1, 1)")
    with without_triggers(path) as other:
        other.execute("delete from items")
    assert told(path, "items") == [('{"order_id":{"$text":"/w=="},"line":1}', "is not in the table", None)]


def test_what_temporary_triggers_hide_is_found(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("create temp trigger first after insert on main.orders begin update orders set total = 9 where id = new.id; end")
    writer.execute("insert into orders values(1, 'x', 1)")
    assert told(path) == [('{"id":1}', "differs", "total")]
    writer.execute("drop trigger temp.first")
    writer.execute("create temp trigger ignoring after update on main.orders begin select raise(ignore); end")
    writer.execute("insert into orders values(2, 'x', 2)")
    writer.execute("update orders set total = 3 where id = 2")
    assert told(path)[1:] == [('{"id":2}', "differs", "total")]


def test_the_command_names_rows_and_the_remedy(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'x', 1), (2, 'y', 2)")
    command = ["verify", str(path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    with without_triggers(path) as other:
        other.execute("update orders set total = 0 where id = 2")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert 'orders {"id":2} differs in column total' in result.output
    assert f"run: penstock capture repair {path} orders" in result.output
    as_json = CliRunner().invoke(app, [*command, "orders", "--json", "--sample", "5"])
    assert (as_json.exit_code, json.loads(as_json.output)["tables"][0]["differing"]) == (1, 1)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=examples(20))
@given(history=st.lists(statement, max_size=10), repairs=st.booleans(), unseen=st.lists(statement, max_size=2))
def test_verify_finds_what_a_comparison_of_images_finds(schema: str, history: list[str], repairs: bool, unseen: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        with closing(connect(path, foreign_keys=True)) as connection:
            connection.executescript(schema)
            enable(str(path))
            for sql in history:
                with suppress(sqlite3.Error):
                    connection.execute(sql)
            with suppress(sqlite3.Error):
                connection.execute("commit")
            was = connection.execute("select * from t order by 1, 2, 3").fetchall()
        if repairs:
            repair(str(path), ".*")
        assert all(one.is_equal for one in verify(str(path)).tables)
        with without_triggers(path) as connection:
            for sql in unseen:
                with suppress(sqlite3.Error):
                    connection.execute(sql)
            with suppress(sqlite3.Error):
                connection.execute("commit")
            now = connection.execute("select * from t order by 1, 2, 3").fetchall()
        [verdict] = verify(str(path), "t").tables
        if "primary key" in schema and (repairs or not verdict.is_equal):
            assert verdict.is_equal == (repr(was) == repr(now))


def test_a_table_with_several_shapes_is_compared(writer: sqlite3.Connection, path: Path) -> None:
    for n in range(4):
        writer.execute(f"insert into orders(id) values({n})")
        writer.execute(f"alter table orders add column extra{n} default {n}")
        enable(str(path))
    writer.execute("delete from orders where id = 1")
    assert (found(path).compared, told(path)) == (4, [])
    with without_triggers(path) as other:
        other.execute("update orders set status = 'x' where id = 2")
    assert told(path) == [('{"id":2}', "differs", "status")]
