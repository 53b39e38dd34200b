"""Enabling, disabling, and what is refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from replay import assert_log_makes, connect, logged

from penstock.errors import CaptureBroken, CaptureRefused, ConfigInvalid, SourceUnavailable
from penstock.sources.sqlite import install
from penstock.sources.sqlite.install import disable, enable
from penstock.sources.sqlite.survey import survey


def schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("select rowid, * from sqlite_master").fetchall()


def states(path: Path) -> dict[str, tuple[str, str]]:
    return {table.table: (table.state, table.why) for table in survey(str(path)).tables}


def test_enabling_twice_changes_nothing(writer: sqlite3.Connection, path: Path) -> None:
    before = schema(writer)
    assert enable(str(path)).tables == {"items": "unchanged", "orders": "unchanged"}
    assert schema(writer) == before


def test_only_the_tables_that_match_are_captured(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.executescript("create table orders(a); create table orders_old(a); create table items(a)")
        assert set(enable(str(path), "orders|it.*").tables) == {"orders", "items"}
        writer.executescript("insert into orders values(1); insert into orders_old values(1); insert into items values(1)")
        assert [change.table for change in logged(path)] == ["orders", "items"]
        assert [change.table for change in logged(path, "i.*")] == ["items"]


def test_a_trial_changes_nothing_and_its_sql_does_the_same(path: Path, tmp_path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute('create table t(a integer primary key, "it\'s" unique)')
        writer.execute("create table w(a, b, primary key(a)) without rowid")
        before = schema(writer)
        statements = enable(str(path), is_trial=True).statements
        assert schema(writer) == before
    by_hand = tmp_path / "by hand.db"
    shutil.copyfile(path, by_hand)
    with closing(connect(by_hand)) as writer:
        writer.executescript(";".join(statements))
        writer.executescript("insert into t values(1, 2), (3, 4); replace into t values(1, 4); replace into w values(1, 1), (1, 2)")
        assert_log_makes(by_hand, writer, ["t", "w"])
        assert set(enable(str(by_hand)).tables.values()) == {"unchanged"}


def test_disabling_leaves_no_trace(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("create table t(a)")
        before = schema(writer)
        enable(str(path))
        writer.execute("insert into t values(1)")
        assert disable(str(path)).tables == {"t": "disabled"}
        assert schema(writer) == before
        assert disable(str(path)).tables == {}
        writer.execute("insert into t values(2)")


def test_capture_of_another_version_says_so_and_can_be_removed(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("update _penstock_meta set value = 99 where name = 'layout'")
    with pytest.raises(CaptureBroken, match="another version"):
        enable(str(path))
    disable(str(path))
    assert set(enable(str(path)).tables.values()) == {"enabled"}


def test_what_cannot_be_captured_is_named(writer: sqlite3.Connection, path: Path) -> None:
    writer.executescript("create view v as select 1; create virtual table words using fts5(body); create table later(a)")
    enable(str(path), "orders|items|v|words")
    found = states(path)
    assert found["v"] == ("not capturable", "a view: capture the tables below it")
    assert found["words"] == ("not capturable", "a virtual table: it cannot have triggers")
    assert found["later"] == ("not captured", "")
    assert found["orders"] == ("captured", "")
    assert not [table for table in found if table.startswith(("words_", "_penstock_", "sqlite_"))]


EARLY_WRITERS = [
    "create table bad(a unique); create trigger/* */own/* */before insert on bad begin insert/* */into/* */'bad' values(1); end",
    "create table bad(a unique); create trigger own -- after\n insert on bad begin update or fail [bad] set a = 1; end",
    "create table bad(a unique); create trigger own update of a on bad begin update -- x\n [bad] set a = 2; end",
    """create table bad(a unique); create view v as select * from bad;
    create trigger through instead of insert on v begin insert into bad values(new.a); end;
    create trigger "own" before insert on bad begin insert into v values(new.a); end""",
    """create table bad(a unique); create table other(a); create trigger own before update of a on bad begin delete from other; end;
    create trigger onward after delete on other when strange(old.a) begin update bad set a = old.a; end""",
    """create table bad(a primary key); create table other(a references bad(a)); create table third(a primary key);
    create table fourth(a references third(a) on delete cascade);
    create trigger own before insert on bad begin delete from third; end;
    create trigger onward after delete on fourth begin update bad set a = 0; end""",
]


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("create table bad(a); create unique index i on bad(lower(a))", "unique index on an expression"),
        ("create table bad(rowid, oid, _rowid_)", "hide all three names of the row id"),
        (f"create table bad({', '.join(f'c{i}' for i in range(991))})", "991 columns"),
        (
            "create table bad(a unique); create trigger own before insert on bad begin insert or ignore into bad values(1); end",
            "own trigger own writes to it before",
        ),
        ("create table bad(a integer primary key, b unique references bad(a) on delete set null)", "points to the table itself"),
        *((ddl, "own trigger own writes to it before") for ddl in EARLY_WRITERS),
    ],
)
def test_a_table_that_cannot_be_captured_exactly_is_refused(writer: sqlite3.Connection, path: Path, ddl: str, why: str) -> None:
    writer.executescript(ddl)
    before = schema(writer)
    with pytest.raises(CaptureRefused, match=why):
        enable(str(path))
    assert schema(writer) == before
    assert states(path)["bad"][0] == "not capturable"
    enable(str(path), "(?!bad).*")


def test_a_harmless_trigger_before_is_not_refused(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.executescript("""create table t(a); create table audit(a);
            create trigger "check it" before insert on t when exists(select 1 from t where a = new.a)
            begin insert into audit values(new.a); end;
            create trigger "before insert" after insert on t when new.a is null begin update t set a = 'insert into t'; end;
            create trigger "note it" before update on t
            begin /* update t */ delete from t where a = new.a + 1; insert into audit values('update t'); end""")
        enable(str(path))
        writer.executescript("insert into t values(1); insert into t values(1); update t set a = 0; insert into t values(null)")
        assert_log_makes(path, writer, ["t", "audit"])


def test_a_wide_table_is_captured(path: Path) -> None:
    with closing(connect(path)) as writer:
        names = [f"column_{i}" for i in range(300)]
        writer.execute(f"create table wide({', '.join(names)})")
        enable(str(path))
        writer.execute(f"insert into wide values({', '.join('?' * 300)})", range(300))
        writer.execute("update wide set column_299 = 'end'")
        assert_log_makes(path, writer, ["wide"])


def test_odd_names_are_captured(path: Path) -> None:
    with closing(connect(path)) as writer:
        writer.execute("""create table "select 'x' -- ""y"" "("a b" integer primary key, "it's" unique, [c;d] default 'q''q')""")
        enable(str(path))
        writer.execute("""insert into "select 'x' -- ""y"" " values(1, 2, 3)""")
        writer.execute("""replace into "select 'x' -- ""y"" " values(2, 2, 3)""")
        assert [change.op for change in logged(path)] == ["insert", "delete", "insert"]
        assert logged(path)[0].after == """{"a b":1,"it's":2,"c;d":3}"""


def test_wal_is_asked_for_and_never_switched_to_in_silence(path: Path) -> None:
    with closing(connect(path, journal_mode="delete")) as writer:
        writer.execute("create table t(a)")
        assert not enable(str(path)).is_wal
        assert writer.execute("pragma journal_mode").fetchone() == ("delete",)
        assert enable(str(path), wal=True).is_wal
        assert survey(str(path)).journal_mode == "wal"
        assert enable(str(path)).is_wal


def test_a_bad_expression_is_the_callers_mistake(writer: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="not a regular expression"):
        enable(str(path), "(")


def test_a_writer_that_does_not_let_go_makes_it_unavailable(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "_PATIENCE", 0.05)
    writer.execute("begin immediate")
    with pytest.raises(SourceUnavailable):
        enable(str(path))
