"""Triggers that were dropped and created again with the same text have missed what was written in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from replay import assert_log_makes, connect, followed, logged, source_of

from penstock.errors import CaptureBroken
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.rescan import DROPPED, repair
from penstock.sources.sqlite.source import LANE
from penstock.sources.sqlite.survey import survey
from penstock.sources.sqlite.suspend import resume, suspend


def texts(writer: sqlite3.Connection, where: str) -> list[str]:
    return [sql for (sql,) in writer.execute(f"select sql from sqlite_master where type = 'trigger' and {where} order by rowid")]


def dropped(writer: sqlite3.Connection, where: str) -> None:
    for (name,) in writer.execute(f"select name from sqlite_master where type = 'trigger' and {where}").fetchall():
        writer.execute(f"drop trigger {name}")


def by_recipe(writer: sqlite3.Connection) -> None:
    """The procedure that SQLite's documentation of ALTER TABLE gives."""
    saved = texts(writer, "tbl_name = 'orders'")
    writer.execute("create table new_orders(id integer primary key, status text, total)")
    writer.execute("insert into new_orders select id, 'changed', total from orders")
    writer.execute("drop table orders")
    writer.execute("alter table new_orders rename to orders")
    for one in saved:
        writer.execute(one)


def by_copy(writer: sqlite3.Connection) -> None:
    """The same by way of a temporary table, so that the text of the table is the same, too."""
    saved = texts(writer, "tbl_name = 'orders'")
    [(sql,)] = writer.execute("select sql from sqlite_master where name = 'orders'")
    writer.execute("create temp table kept as select id, 'changed', total from orders")
    writer.execute("drop table orders")
    writer.execute(sql)
    writer.execute("insert into orders select * from kept")
    writer.execute("drop table kept")
    for one in saved:
        writer.execute(one)


def with_triggers_dropped(where: str) -> Callable[[sqlite3.Connection], None]:
    def write(writer: sqlite3.Connection) -> None:
        saved = texts(writer, where)
        dropped(writer, where)
        writer.execute("update orders set status = 'changed'")
        for one in saved:
            writer.execute(one)

    return write


RECIPES = {
    "rebuilt": by_recipe,
    "rebuilt with the same text": by_copy,
    "triggers of the table": with_triggers_dropped("tbl_name = 'orders'"),
    "one trigger": with_triggers_dropped("tbl_name = 'orders' and name glob '*_update'"),
    "all triggers": with_triggers_dropped("1"),
}


def carried_out(writer: sqlite3.Connection, recipe: Callable[[sqlite3.Connection], None]) -> None:
    before = texts(writer, "1")
    writer.execute("begin")
    recipe(writer)
    writer.execute("commit")
    assert sorted(texts(writer, "1")) == sorted(before)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("afterwards", [(), ("vacuum",), ("create table other(a)", "vacuum", "drop table other")])
def test_a_stopped_pipeline_finds_triggers_that_were_created_again(
    writer: sqlite3.Connection, path: Path, recipe: Callable[[sqlite3.Connection], None], afterwards: Sequence[str]
) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2)")
    carried_out(writer, recipe)
    for sql in afterwards:
        writer.execute(sql)
    with pytest.raises(CaptureBroken, match="orders had its triggers dropped and created again") as broken:
        logged(path)
    assert f"penstock capture repair {path}" in broken.value.remedy
    assert survey(str(path)).is_broken
    repair(str(path))
    assert not survey(str(path)).is_broken
    assert_log_makes(path, writer, ["orders", "items"], is_strict=False)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_running_pipeline_finds_triggers_that_were_created_again_within_a_window(
    writer: sqlite3.Connection, path: Path, recipe: Callable[[sqlite3.Connection], None]
) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2)")
    windows = follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    followed(windows, upto=2)
    carried_out(writer, recipe)
    with pytest.raises(CaptureBroken, match="orders had its triggers dropped and created again"):
        next(windows)


def test_enable_leaves_a_gap_where_triggers_were_created_again(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    carried_out(writer, by_recipe)
    assert "changes are missing: penstock capture repair" in enable(str(path)).tables["orders"]
    with pytest.raises(CaptureBroken):
        logged(path)
    repair(str(path))
    assert_log_makes(path, writer, ["orders"], is_strict=False)


def test_a_suspended_table_whose_light_triggers_were_created_again_is_told_as_a_whole(
    writer: sqlite3.Connection, path: Path
) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 2)")
    suspend(str(path), "orders")
    carried_out(writer, by_recipe)
    assert resume(str(path)).tables["orders"] == "resumed: all 2 rows logged again"
    assert_log_makes(path, writer, ["orders"], is_strict=False)


@pytest.mark.parametrize(
    "ddl",
    [
        "vacuum",
        "reindex",
        "create table other(a); create trigger t after insert on other begin select 1; end; vacuum",
        "create view v as select * from orders; vacuum; drop view v",
        "analyze; drop table sqlite_stat1; vacuum",
        "alter table items rename to things; vacuum; alter table things rename to items",
    ],
)
def test_triggers_that_have_been_there_all_the_time_are_trusted_whatever_else_happened(
    writer: sqlite3.Connection, path: Path, ddl: str
) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript(ddl)
    writer.execute("update orders set status = 'b'")
    enable(str(path), "orders|items")  # anew where VACUUM has moved the row that log rows are checked against
    enable(str(path), "orders|items")
    logged(path)
    assert not survey(str(path)).is_broken


@pytest.mark.parametrize("way", ["dump", "backup", "vacuum into"])
def test_a_copy_of_the_database_is_captured_like_the_original(
    writer: sqlite3.Connection, path: Path, tmp_path: Path, way: str
) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    copy = tmp_path / "copy.db"
    with closing(connect(copy)) if way != "vacuum into" else closing(writer.cursor()) as made:
        if way == "dump":
            made.executescript("\n".join(writer.iterdump()))
        elif way == "backup":
            writer.backup(made)
        else:
            made.execute(f"vacuum into '{copy}'")
    with closing(connect(copy)) as other:
        other.execute("insert into orders values(2, 'b', 2)")
        assert not survey(str(copy)).is_broken
        assert_log_makes(copy, other, ["orders"], is_strict=False)


def test_a_capture_of_the_layout_before_is_continued_by_enable(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1)")
    suspend(str(path), "items")
    for (view,) in writer.execute("select name from sqlite_master where type = 'view'").fetchall():
        writer.execute(f"drop view {view}")
    writer.execute(f"update _penstock_meta set value = {catalog.LAYOUT - 1} where name = 'layout'")
    with pytest.raises(CaptureBroken, match=f"layout {catalog.LAYOUT - 1}") as broken:
        logged(path)
    assert broken.value.remedy == f"run: penstock capture enable {path}"
    assert enable(str(path)).tables == {"orders": "unchanged", "items": "suspended"}
    assert resume(str(path)).tables == {"items": "resumed"}
    assert_log_makes(path, writer, ["orders", "items"], is_strict=False)


def test_what_penstock_itself_takes_away_leaves_no_view(writer: sqlite3.Connection, path: Path) -> None:
    suspend(str(path), "orders")
    writer.execute("drop table orders")
    assert resume(str(path)).tables == {"orders": DROPPED}
    disable(str(path))
    assert writer.execute("select name from sqlite_master where name glob '_penstock*'").fetchall() == []
