"""Whatever happens to tables and triggers after capture was enabled shows within one window, and is never passed over."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from replay import followed, logged, positions, source_of

from penstock.cursor import Cursor
from penstock.errors import CaptureBroken, CaptureMissing
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.source import LANE

REBUILD = """create table fresh(id integer primary key, status text, total, extra);
    insert into fresh select id, status, total, null from orders; drop table orders; alter table fresh rename to orders"""

ALTERED = {
    "add column": ("alter table orders add column extra", "orders was altered"),
    "rename column": ("alter table orders rename column status to state", "orders was altered"),
    "rename table": ("alter table orders rename to purchases", "orders was renamed to purchases"),
}
LOST = {
    "rebuild": (REBUILD, "orders has lost its triggers"),
    "drop a trigger": ("drop trigger _penstock_2_insert", "orders has lost its triggers"),
    "forge a trigger": (
        "drop trigger _penstock_2_insert; create trigger _penstock_2_insert after insert on orders begin select 1; end",
        "orders had its triggers dropped and created again",
    ),
    "forge the text of a trigger": (
        "pragma writable_schema = on; update sqlite_master set sql = replace(sql, 'insert into', 'insert or ignore into')"
        " where name = '_penstock_2_insert'; pragma schema_version = 1000; pragma writable_schema = off",
        "orders has other triggers than those of capture",
    ),
    "drop the seal": ("drop view _penstock_2_seal", "orders had its triggers dropped and created again"),
    "unique index": ("create unique index by_status on orders(status)", "orders has other unique indexes"),
    "later trigger": (
        "create trigger late after insert on orders begin update orders set total = 0 where id = new.id; end",
        "orders got the trigger late, which fires before those of capture",
    ),
}


def start_of(path: Path) -> Cursor:
    return source_of(path).begin(LANE, "beginning")


@pytest.mark.parametrize(("ddl", "what"), (ALTERED | LOST).values(), ids=ALTERED | LOST)
def test_a_change_of_schema_stops_the_next_window_of_a_pipeline_that_does_not_heal(
    writer: sqlite3.Connection, path: Path, ddl: str, what: str
) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    windows = follow(source_of(path, heal=False), LANE, start_of(path), ANONYMOUS)
    followed(windows, upto=1)
    writer.executescript(ddl)
    with pytest.raises(CaptureBroken, match=what) as broken:
        next(windows)
    repair = ddl not in [altered for altered, _ in ALTERED.values()]
    assert f"penstock capture {'repair' if repair else 'enable'} {path}" in broken.value.remedy


@pytest.mark.parametrize(("ddl", "what"), LOST.values(), ids=LOST)
def test_what_loses_changes_while_nobody_looked_stops_the_first_window(
    writer: sqlite3.Connection, path: Path, ddl: str, what: str
) -> None:
    start = start_of(path)
    writer.executescript(ddl)
    with pytest.raises(CaptureBroken, match=what) as broken:
        next(follow(source_of(path), LANE, start, ANONYMOUS))
    assert f"penstock capture repair {path} orders" in broken.value.remedy


@pytest.mark.parametrize(("ddl", "what"), LOST.values(), ids=LOST)
def test_enable_leaves_a_gap_where_changes_may_be_missing(writer: sqlite3.Connection, path: Path, ddl: str, what: str) -> None:
    source, start = source_of(path), start_of(path)
    writer.execute("insert into orders values(1, 'a', 1)")
    writer.executescript(ddl)
    enable(str(path))
    writer.execute("insert into items values(1, 1, 'x')")
    windows = follow(source, LANE, start, ANONYMOUS)
    assert positions([next(windows)]) == [1]
    with pytest.raises(CaptureBroken, match="changes of orders are missing before position 2") as broken:
        next(windows)
    assert "--from 2" in broken.value.remedy
    assert f"penstock capture repair {path} orders" in broken.value.remedy
    assert positions(followed(follow(source, LANE, source.begin(LANE, "2"), ANONYMOUS), upto=3))[-1] > 2
    with pytest.raises(CaptureBroken, match="missing before position 2"):
        logged(path)


def test_a_dropped_table_leaves_no_gap_but_is_told(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("insert into orders values(1, 'a', 1); drop table orders")
    with pytest.raises(CaptureBroken, match="orders was dropped"):
        logged(path)
    enable(str(path))
    gone = logged(path)[-1]
    assert (gone.op, gone.table, gone.key, gone.after) == ("schema", "orders", "{}", None)
    assert json.loads(gone.before or "")["columns"] == ["id", "status", "total"]


def test_a_gap_of_one_table_does_not_stop_those_who_want_another(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path, "items")
    start = source.begin(LANE, "beginning")
    windows = follow(source, LANE, start, ANONYMOUS)
    next(windows)
    writer.executescript(REBUILD)
    writer.execute("insert into items values(1, 1, 'x')")
    assert positions(followed(windows, upto=1)) == [1]
    enable(str(path))
    writer.execute("insert into items values(1, 2, 'y')")
    assert positions(followed(windows, upto=4)) == [4]


def test_a_table_that_was_disabled_for_a_while_has_a_gap(writer: sqlite3.Connection, path: Path) -> None:
    disable(str(path), "orders")
    writer.execute("insert into orders values(1, 'a', 1)")
    enable(str(path))
    with pytest.raises(CaptureBroken, match="orders are missing before position 1: it was not captured for a while"):
        logged(path)


def test_a_table_that_is_no_longer_captured_is_missed(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path, "orders")
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    disable(str(path), "orders")
    with pytest.raises(CaptureMissing, match="no chosen table is captured"):
        next(windows)


def test_a_new_table_and_a_vacuum_do_no_harm(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    writer.executescript("create table aside(a); create index by_status on orders(status); vacuum")
    writer.execute("insert into orders values(1, 'a', 1)")
    assert positions(followed(windows, upto=1)) == [1]
    enable(str(path))
    writer.execute("insert into aside values(1)")
    assert positions(followed(windows, upto=2)) == [2]


def test_dropping_a_captured_column_fails_loudly_for_the_writer(writer: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="_penstock_"):
        writer.execute("alter table orders drop column total")


def test_capture_that_is_disabled_and_enabled_again_is_another_log(writer: sqlite3.Connection, path: Path) -> None:
    from penstock.errors import SourceRewound

    source = source_of(path)
    writer.execute("insert into orders values(1, 'a', 1)")
    reached = source.head(LANE)
    disable(str(path))
    enable(str(path))
    with pytest.raises(SourceRewound, match="another incarnation"):
        next(follow(source, LANE, reached, ANONYMOUS))
