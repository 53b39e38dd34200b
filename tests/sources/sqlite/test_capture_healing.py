"""Capture survives changes of schema: what loses nothing is healed at once, the rest by one command."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from replay import assert_log_makes, connect, followed, logged, positions, source_of

from penstock.change import Change
from penstock.errors import CaptureBroken, ConfigInvalid
from penstock.following import follow
from penstock.progress.batch_target import prove
from penstock.source import ANONYMOUS
from penstock.sources.sqlite import rescan
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.source import LANE
from penstock.sources.sqlite.survey import survey
from penstock.sources.sqlite.suspend import resume, suspend

REBUILD = """begin; create table fresh(id integer primary key, status text, total, extra);
    insert into fresh select id, status, total, null from orders; drop table orders; alter table fresh rename to orders; commit"""


def ops(changes: list[Change]) -> list[str]:
    return [f"{change.op} {change.key}" for change in changes]


def told(change: Change) -> tuple[Any, Any]:
    return json.loads(change.before or "null"), json.loads(change.after or "null")


def states(path: Path) -> list[tuple[str, str, str]]:
    return [(table.table, table.state, table.why) for table in survey(str(path)).tables]


ALTERED = {
    "add column": ("alter table orders add column extra text default 5", {"added": {"extra": "5"}}),
    "rename column": ("alter table orders rename column status to state", {"renamed": {"status": "state"}}),
    "rename table": ("alter table orders rename to purchases", {}),
}


@pytest.mark.parametrize(("ddl", "facts"), ALTERED.values(), ids=ALTERED)
def test_an_altered_table_is_healed_and_the_stream_goes_on(
    writer: sqlite3.Connection, path: Path, ddl: str, facts: dict[str, Any]
) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    followed(windows, upto=1)
    writer.execute(ddl)
    [(table,)] = writer.execute("select name from sqlite_master where name in ('orders', 'purchases')")
    writer.execute(f"update {table} set total = 2")
    assert positions(followed(windows, upto=4)) == [3, 4]
    writer.execute(f"update {table} set total = 3")
    assert positions(followed(windows, upto=5)) == [5]
    first, schema, refresh, update = logged(path)
    assert ops([first, schema, refresh, update]) == ['insert {"id":1}', "schema {}", 'refresh {"id":1}', 'update {"id":1}']
    before, after = told(schema)
    assert before == {"table": "orders", "columns": ["id", "status", "total"], "key": ["id"]}
    columns = [row[1] for row in writer.execute(f"pragma table_info({table})")]
    assert after == {"table": table, "columns": columns, "key": ["id"], **facts}
    assert (schema.table, refresh.before, json.loads(refresh.after or "")["total"]) == (table, None, 2)
    assert_log_makes(path, writer, [table], is_strict=False)


def test_a_table_that_was_altered_is_healed_also_by_who_only_proves_a_place(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    source = source_of(path)
    place = source.begin(LANE, "1")
    writer.execute("alter table orders add column extra text")
    with pytest.raises(CaptureBroken):
        prove(source_of(path, heal=False), LANE, place)
    prove(source, LANE, place)
    assert survey(str(path)).tables[-1].state == "captured"


def test_a_table_that_was_altered_is_healed_before_a_time_is_searched_for(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    source = source_of(path)
    begin = source.begin(LANE, "beginning")
    writer.execute("alter table orders add column extra text")
    with pytest.raises(CaptureBroken):
        source_of(path, heal=False).seek.since(LANE, datetime(2020, 1, 1, tzinfo=UTC))
    assert source.seek.since(LANE, datetime(2020, 1, 1, tzinfo=UTC)) == begin
    assert survey(str(path)).tables[-1].state == "captured"


def test_a_row_that_went_meanwhile_is_told_as_deleted_by_its_key(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("insert into items values(1, 1, 'x'), (1, 2, 'y'); alter table items add column price")
    writer.executescript("delete from items where line = 1; update items set line = 3 where line = 2")
    changes = logged(path)
    keys = ['{"order_id":1,"line":1}', '{"order_id":1,"line":2}', '{"order_id":1,"line":3}']
    assert ops(changes)[2:] == ["schema {}", f"delete {keys[0]}", f"delete {keys[1]}", f"refresh {keys[2]}"]
    assert changes[3].before == keys[0]


@pytest.mark.parametrize(
    "ddl",
    [
        "create trigger late after insert on orders begin update orders set total = 0 where id = new.id; end",
        "create unique index by_status on orders(status)",
    ],
)
def test_a_late_trigger_or_index_is_healed_by_a_pipeline_that_saw_it_come(writer: sqlite3.Connection, path: Path, ddl: str) -> None:
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    writer.execute(ddl)
    next(windows)
    writer.execute("insert into orders values(1, 'a', 1)")
    assert_log_makes(path, writer, ["orders"])


def test_rows_that_a_late_trigger_told_in_the_wrong_order_are_told_again(writer: sqlite3.Connection, path: Path) -> None:
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    writer.execute("create trigger late after insert on orders begin update orders set total = 0 where id = new.id; end")
    writer.execute("insert into orders values(1, 'a', 1)")
    followed(windows, upto=3)
    assert ops(logged(path)) == ['update {"id":1}', 'insert {"id":1}', 'refresh {"id":1}']
    assert_log_makes(path, writer, ["orders"], is_strict=False)


def test_a_unique_index_through_which_rows_may_have_gone_stops_the_pipeline(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    followed(windows, upto=1)
    writer.executescript("create unique index by_status on orders(status); replace into orders values(2, 'a', 1)")
    with pytest.raises(CaptureBroken, match="has other unique indexes") as broken:
        next(windows)
    assert f"penstock capture repair {path} orders" in broken.value.remedy
    repair(str(path))
    assert_log_makes(path, writer, ["orders"], is_strict=False)


def test_a_generated_column_needs_a_repair_because_every_row_has_it(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("insert into orders values(1, 'a', 1); alter table orders add column twice as (total * 2)")
    with pytest.raises(CaptureBroken, match="generated column twice"):
        logged(path)
    repair(str(path))
    assert_log_makes(path, writer, ["orders"], is_strict=False)


@pytest.mark.parametrize("by_enable", [False, True])
def test_a_repaired_table_is_told_between_two_marks(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, by_enable: bool
) -> None:
    monkeypatch.setattr(rescan, "CHUNK", 2)
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    reached = source_of(path).head(LANE)
    writer.executescript(REBUILD + "; delete from orders where id = 2; insert into orders values(7, 'z', 7, 7)")
    if by_enable:
        assert "penstock capture repair" in enable(str(path)).tables["orders"]
        assert ("orders", "broken", "lacks changes in the log: penstock capture repair") in states(path)
    with pytest.raises(CaptureBroken):
        followed(follow(source_of(path), LANE, reached, ANONYMOUS), upto=20)
    assert repair(str(path), "orders").tables == {"orders": "repaired: all 3 rows logged again"}
    windows = followed(follow(source_of(path), LANE, reached, ANONYMOUS), upto=10)
    assert positions(windows) == [5, 6, 7, 8, 9, 10]  # 4 is the gap
    schema, begin, *rows, end = logged(path)[3:]
    assert [row.key for row in rows] == ['{"id":1}', '{"id":3}', '{"id":7}']
    assert told(schema)[1]["columns"] == ["id", "status", "total", "extra"]
    assert (told(begin)[1]["rescan"], told(end)[1]["rescan"], told(end)[1]["since"]) == ("begin", "end", begin.position)
    assert_log_makes(path, writer, ["orders"], is_strict=False)
    assert repair(str(path)).tables == {}
    assert ("orders", "captured", "") in states(path)


def test_a_repair_that_was_killed_is_done_again_as_a_whole(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescan, "CHUNK", 2)
    writer.execute("insert into items values(1, 1, 'x'), (1, 2, 'y'), (2, 1, 'z'), (2, 2, null)")
    writer.execute("drop trigger _penstock_1_insert")

    def kill(table: str, done: int, of: int) -> None:
        assert (table, done, of) == ("items", 2, 4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(str(path), progress=kill)
    with pytest.raises(CaptureBroken, match="items are missing before position 5"):
        logged(path)
    writer.execute("delete from items where line = 1")
    assert repair(str(path)).tables == {"items": "repaired: all 2 rows logged again"}
    assert_log_makes(path, writer, ["items"], is_strict=False)


def test_writers_go_on_while_a_table_is_scanned(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescan, "CHUNK", 1)
    writer.execute("insert into orders values(1, 'a', 1), (5, 'b', 2), (9, 'c', 3)")

    def meanwhile(table: str, done: int, of: int) -> None:
        if done == 1:
            writer.executescript(
                "update orders set id = 0 where id = 9; insert into orders values(4, 'd', 4); delete from orders where id = 1"
            )

    repair(str(path), "orders", meanwhile)
    assert_log_makes(path, writer, ["orders"], is_strict=False)


@pytest.mark.parametrize(
    ("ddl", "is_over"),
    [("create table other(a)", False), ("vacuum", False), ("alter table orders add column a", True), ("drop table orders", True)],
)
def test_a_table_that_changes_while_it_is_scanned_ends_the_scan(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, ddl: str, is_over: bool
) -> None:
    monkeypatch.setattr(rescan, "CHUNK", 1)
    writer.execute("insert into orders values(1, 'a', 1), (5, 'b', 2)")

    def meanwhile(table: str, done: int, of: int) -> None:
        if done == 1:
            writer.execute(ddl)

    with pytest.raises(CaptureBroken, match="schema changed while orders was scanned") if is_over else nullcontext():
        repair(str(path), "orders", meanwhile)
    repair(str(path), "orders")
    assert_log_makes(path, writer, ["orders"] if "drop" not in ddl else [], is_strict=False)


def test_a_database_that_may_only_be_read_is_not_healed_but_broken(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("alter table orders add column extra")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may be run by root, who may do everything
    with pytest.raises(CaptureBroken, match="orders was altered"):
        logged(path)


def test_a_suspended_table_can_lose_a_column_and_only_what_was_touched_is_told_again(
    writer: sqlite3.Connection, path: Path
) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    followed(windows, upto=3)
    assert suspend(str(path), "orders").tables == {"orders": "suspended"}
    writer.executescript("alter table orders drop column total; update orders set status = 'x' where id = 2")
    writer.execute("insert into items values(1, 1, 'goes on')")
    assert positions(followed(windows, upto=4)) == [4]
    writer.execute("delete from orders where id = 3")
    assert ("orders", "suspended", "2 rows touched meanwhile") in states(path)
    assert "logged again" in resume(str(path)).tables["orders"]
    followed(windows, upto=7)
    changes = logged(path)[4:]
    assert ops(changes) == ["schema {}", 'delete {"id":3}', 'refresh {"id":2}']
    assert told(changes[0])[1]["columns"] == ["id", "status"]
    assert_log_makes(path, writer, ["orders", "items"], is_strict=False)


@pytest.mark.parametrize(
    ("meanwhile", "done"),
    [
        ("update orders set total = 9 where id = 1", "resumed: 1 touched rows logged again"),
        ("replace into orders values(2, 'z', 1)", "resumed: 1 touched rows logged again"),
        ("update or replace orders set id = 2 where id = 1", "resumed: 2 touched rows logged again"),
        ("alter table orders rename to purchases", "resumed"),
        ("alter table orders drop column status; alter table orders add column state", "resumed: all 2 rows logged again"),
        ("create unique index i on orders(total); replace into orders values(3, 'c', 2)", "resumed: all 2 rows logged again"),
        (REBUILD, "resumed: all 2 rows logged again"),
        ("drop table orders", rescan.DROPPED),
    ],
)
def test_a_resumed_table_is_told_as_far_as_anyone_can_know_it_was_touched(
    writer: sqlite3.Connection, path: Path, meanwhile: str, done: str
) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2)")
    suspend(str(path))
    writer.executescript(meanwhile)
    report = resume(str(path)).tables
    assert report.get("orders", report.get("purchases")) == done
    present = [name for (name,) in writer.execute("select name from sqlite_master where name in ('orders', 'purchases')")]
    assert_log_makes(path, writer, present, is_strict=False)
    assert not survey(str(path)).is_broken


def test_two_tables_that_were_rebuilt_and_renamed_do_not_take_the_same_heir(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.executescript("create table a(id integer primary key, b); create table c(id integer primary key, b)")
        enable(str(path))
        suspend(str(path))
        writer.executescript("drop table a; drop table c; create table d(id integer primary key, b)")
        done = sorted(resume(str(path)).tables.items())
        assert done == [("c", rescan.DROPPED), ("d", "resumed: all 0 rows logged again")]


def test_a_resume_that_was_killed_leaves_the_table_suspended(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescan, "CHUNK", 1)
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2)")
    suspend(str(path))
    writer.executescript(REBUILD)

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(str(path), progress=kill)
    assert ("orders", "suspended", "resume was interrupted: penstock capture resume") in states(path)
    assert repair(str(path), "orders").tables == {"orders": "suspended: penstock capture resume"}
    assert resume(str(path)).tables["orders"] == "resumed: all 2 rows logged again"
    assert_log_makes(path, writer, ["orders"], is_strict=False)


def test_a_name_that_a_pipeline_chose_does_not_vanish_silently(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path, "orders|items")
    start = source.begin(LANE, "beginning")
    writer.execute("alter table orders rename to purchases")
    with pytest.raises(CaptureBroken, match="orders was renamed to purchases, which the pipeline's `tables` does not choose"):
        followed(follow(source, LANE, start, ANONYMOUS), upto=1)
    assert followed(follow(source_of(path, "purchases|items"), LANE, start, ANONYMOUS), upto=1)
    writer.execute("create table orders(id integer primary key)")
    with pytest.raises(CaptureBroken, match="the present table orders is not captured"):
        followed(follow(source_of(path), LANE, start, ANONYMOUS), upto=1)


def test_what_was_not_chosen_never_reaches_the_log(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table users(id integer primary key, name, password, mail unique)")
        writer.execute("insert into users values(9, 'z', 'secret', 'z@z')")
        enable(str(path), columns=r"users\.name")
        writer.executescript(
            "insert into users values(1, 'a', 'secret', 'm@m'); update users set password = 'secret2', name = 'b' where id = 1;"
            "replace into users values(2, 'c', 'secret', 'm@m'); alter table users add column nick default 'secret3';"
            "delete from users"
        )
        changes = logged(path)
        assert ops(changes) == [
            'insert {"id":1}', 'update {"id":1}', 'delete {"id":1}', 'insert {"id":2}', 'delete {"id":2}', 'delete {"id":9}'
        ]  # fmt: skip
        assert (changes[1].before, changes[1].after) == ('{"id":1,"name":"a"}', '{"id":1,"name":"b"}')
        everything = "\n".join(line for line in writer.iterdump() if 'INSERT INTO "_penstock_log' in line)
        assert "secret" not in everything
        [state] = survey(str(path)).tables
        assert (state.state, state.left_out) == ("captured", ("password", "mail", "nick"))


def test_a_choice_is_kept_until_another_is_made(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table users(id integer primary key, name, password)")
        enable(str(path), columns=r"users\.name")
        suspend(str(path))
        writer.executescript("create table fresh as select * from users; drop table users; alter table fresh rename to users")
        resume(str(path))
        disable(str(path), "users")
        enable(str(path))
        assert [table.left_out for table in survey(str(path)).tables] == [("id", "password")]
        repair(str(path))
        writer.execute("alter table users rename column name to label")
        with pytest.raises(CaptureBroken, match="was altered"):
            logged(path)
        enable(str(path), columns=r"users\.(id|label)")
        writer.execute("insert into users values(1, 'a', 'secret')")
        assert logged(path)[-1].after == '{"id":1,"label":"a"}'
        assert [table.left_out for table in survey(str(path)).tables] == [("password",)]


def test_nothing_can_be_suspended_that_is_not_captured(writer: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such table is captured"):
        suspend(str(path), "absent")
    with pytest.raises(ConfigInvalid, match="no table that matches 'absent' is captured"):
        repair(str(path), "absent")


@pytest.mark.parametrize("tables", [None, "t"])
def test_a_reader_learns_of_the_shape_that_healing_has_added_without_a_change_of_the_schema(path: Path, tables: str | None) -> None:
    with closing(connect(path, foreign_keys=True)) as writer:
        writer.execute("create table t(a integer primary key, b unique, c references t(a) on update cascade)")
        writer.execute("create table other(a)")
        enable(str(path))
        readers = [follow(source_of(path, tables), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS) for _ in range(2)]
        for windows in readers:
            next(windows)
        writer.execute("insert into t values(1, 1, 1)")
        writer.execute("update t set a = 2")
        writer.execute("delete from t")
        [(head,)] = writer.execute("select max(seq) from _penstock_log")
        for windows in readers:
            followed(windows, upto=head)
        rows = logged(path, tables)
        writer.execute("insert into t values(5, 5, 5)")
        [(head,)] = writer.execute("select max(seq) from _penstock_log")
        assert [positions(followed(windows, upto=head))[-1:] for windows in readers] == [[head], [head]]
        assert rows[-1].op == "delete"
