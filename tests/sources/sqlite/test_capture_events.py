"""Which events a write makes, in which order, and what it leaves undisturbed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from replay import assert_log_makes, connect, logged

from deadline import PATIENCE
from facts import row_ids
from penstock.errors import CaptureBroken
from penstock.rows import rows_of_change
from penstock.sources.sqlite.install import enable


def told(path: Path) -> list[tuple[str, str]]:
    return [(change.op, change.key) for change in logged(path)]


def test_an_insert_has_only_an_after_and_a_delete_only_a_before(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(0, 'x', 1)")
    writer.execute("delete from orders")
    inserted, deleted = logged(path)
    assert (inserted.op, inserted.before, inserted.after) == ("insert", None, '{"id":0,"status":"x","total":1}')
    assert (deleted.op, deleted.before, deleted.after) == ("delete", inserted.after, None)
    assert (*row_ids(inserted), *row_ids(deleted)) == (None, 0, 0, None)


def test_every_row_of_a_statement_is_an_event(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders(status) values('a'), ('b'), ('c')")
    writer.execute("delete from orders")
    assert told(path)[3:] == [("delete", '{"id":1}'), ("delete", '{"id":2}'), ("delete", '{"id":3}')]


@pytest.mark.parametrize(
    "deed",
    [
        "begin; insert into orders values(2, 'x', 1); rollback",
        "savepoint s; delete from orders; rollback to s; release s",
        "insert or ignore into orders values(1, 'x', 1)",
        "insert into orders values(1, 'x', 1) on conflict do nothing",
        "update orders set status = 'y' where id = 7",
    ],
)
def test_what_was_not_done_leaves_nothing(writer: sqlite3.Connection, path: Path, deed: str) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    writer.executescript(deed)
    writer.execute("insert into orders values(9, 'z', 1)")
    assert [(change.position, change.key) for change in logged(path)] == [(1, '{"id":1}'), (2, '{"id":9}')]


def test_a_violated_constraint_leaves_nothing(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    with pytest.raises(sqlite3.IntegrityError):
        writer.execute("insert into orders values(2, 'x', 1), (1, 'x', 1)")
    assert told(path) == [("insert", '{"id":1}')]


def test_a_key_change_is_an_update_under_the_new_key_with_the_old_one_in_before(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    writer.execute("update orders set id = 5")
    moved = logged(path)[1]
    assert (moved.op, moved.key, *row_ids(moved)) == ("update", '{"id":5}', 1, 5)
    assert json.loads(moved.before or "")["id"] == 1


def test_replace_tells_of_every_row_it_removes(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("create table users(id integer primary key, mail unique, name unique)")
    enable(str(path))
    writer.execute("insert into users values(1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')")
    writer.execute("replace into users values(1, 'b', 'z')")
    assert sorted(told(path)[3:6]) == [("delete", '{"id":1}'), ("delete", '{"id":2}'), ("delete", '{"id":3}')]
    assert told(path)[6:] == [("insert", '{"id":1}')]


def test_replace_goes_by_the_collation_of_the_index(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript(
        "create table users(id integer primary key, mail); create unique index by_mail on users(mail collate nocase)"
    )
    enable(str(path))
    writer.executescript("insert into users values(1, 'a@b'); replace into users values(2, 'A@B')")
    assert told(path) == [("insert", '{"id":1}'), ("delete", '{"id":1}'), ("insert", '{"id":2}')]


def test_a_tables_own_older_triggers_tell_their_changes_after_the_row_itself(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table t(a integer primary key, b)")
        writer.execute("create trigger stamp after insert on t begin update t set b = 'stamped' where a = new.a; end")
        enable(str(path))
        writer.execute("insert into t values(1, 'raw')")
        assert [(change.op, change.after) for change in logged(path)] == [
            ("insert", '{"a":1,"b":"raw"}'),
            ("update", '{"a":1,"b":"stamped"}'),
        ]


def test_children_go_before_their_parent_in_a_cascade(path: Path) -> None:
    with closing(connect(path, foreign_keys=1)) as writer:
        writer.executescript(
            "create table p(a integer primary key); create table c(a integer primary key, p references p on delete cascade)"
        )
        enable(str(path))
        writer.executescript("insert into p values(1); insert into c values(7, 1); replace into p values(1)")
        assert [(change.table, change.op) for change in logged(path)[2:]] == [("c", "delete"), ("p", "delete"), ("p", "insert")]


def test_the_writer_does_not_notice(writer: sqlite3.Connection) -> None:
    cursor = writer.execute("insert into orders values(41, 'x', 1), (42, 'y', 1)")
    assert (cursor.lastrowid, cursor.rowcount) == (42, 2)
    assert writer.execute("select changes(), last_insert_rowid()").fetchone() == (2, 42)
    assert writer.execute("update orders set total = 2 returning id").fetchall() == [(41,), (42,)]


@pytest.mark.parametrize(
    "pragmas", ["", "pragma trusted_schema = off;", "pragma recursive_triggers = on; pragma foreign_keys = on;"]
)
def test_any_other_program_is_captured_too(writer: sqlite3.Connection, path: Path, pragmas: str) -> None:
    script = (
        pragmas + "insert into orders values(1, 'shell', 1.5); replace into orders values(1, 'again', x'00'); delete from items;"
    )
    python = [sys.executable, "-c", "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())"]
    program = ["sqlite3"] if shutil.which("sqlite3") else python
    subprocess.run([*program, str(path)], input=script, text=True, check=True, timeout=PATIENCE)
    assert told(path) == [("insert", '{"id":1}'), ("delete", '{"id":1}'), ("insert", '{"id":1}')]
    assert_log_makes(path, writer, ["orders", "items"])


def test_rows_written_to_a_database_in_rollback_mode_are_captured(path: Path) -> None:
    with closing(connect(path, journal_mode="delete")) as writer:
        writer.execute("create table t(a)")
        assert not enable(str(path)).is_wal
        writer.execute("insert into t values(1)")
        assert told(path) == [("insert", '{"rowid":1}')]


def test_an_event_that_another_overtook_stops_the_pipeline(path: Path) -> None:
    with closing(connect(path, foreign_keys=1)) as writer:
        writer.execute("create table tree(a integer primary key, up references tree(a) on update cascade)")
        enable(str(path))
        writer.executescript("insert into tree values(1, 1), (2, 1); update tree set a = 7 where a = 2")
        assert len(logged(path)) == 3
        writer.execute("update tree set a = 5 where a = 1")
        with pytest.raises(CaptureBroken, match="of tree is not recorded exactly"):
            logged(path, heal=False)
        assert_log_makes(path, writer, ["tree"], is_strict=False)


@pytest.mark.parametrize(("columns", "name"), [("a", "rowid"), ("a, ROWID", "_rowid_"), ("rowid, _rowid_, a", "oid")])
def test_the_key_of_a_table_without_one_is_the_row_id_by_a_name_that_is_no_column(path: Path, columns: str, name: str) -> None:
    with closing(connect(path)) as writer:
        writer.execute(f"create table t({columns})")
        enable(str(path))
        writer.execute(f"insert into t({name}, a) values(7, 'x'), (8, 'x')")
        writer.execute(f"update t set {name} = 9 where {name} = 7")
        writer.execute("delete from t where a = 'y'")
        assert told(path) == [("insert", f'{{"{name}":7}}'), ("insert", f'{{"{name}":8}}'), ("update", f'{{"{name}":9}}')]
        [*_, update] = logged(path)
        assert rows_of_change(update) == (("t", f'{{"{name}":9}}'), ("t", f'{{"{name}":7}}'))
        assert_log_makes(path, writer, ["t"])


def test_a_key_column_may_be_called_rowid(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table t(rowid text primary key, a)")
        enable(str(path))
        writer.execute("insert into t values('x', 1), ('y', 2)")
        writer.execute("update t set rowid = 'z' where a = 1")
        assert [key for _, key in told(path)] == ['{"rowid":"x"}', '{"rowid":"y"}', '{"rowid":"z"}']
        assert_log_makes(path, writer, ["t"])
