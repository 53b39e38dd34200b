"""REPLACE in the corners of SQLite: every row that it removes is in the log."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from replay import assert_log_makes, connect

from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.survey import survey

FILLED_IN = {
    "insert": (
        "create table t(id integer primary key, a text not null default 'x' unique, v)",
        ["insert into t values(1, 'x', 1)"],
        "insert or replace into t values(2, null, 2)",
    ),
    "update": (
        "create table t(id integer primary key, a text not null default 'x' unique, v)",
        ["insert into t values(1, 'x', 1), (2, 'y', 2)"],
        "update or replace t set a = null where id = 2",
    ),
    "in the table": (
        "create table t(id integer primary key, a int not null on conflict replace default '5' unique on conflict replace)",
        ["insert into t values(1, 5)"],
        "insert into t values(2, null)",
    ),
    "without row id": (
        "create table t(a text collate nocase default 'X' primary key, v) without rowid",
        ["insert into t values('x', 1)"],
        "insert or replace into t values(null, 2)",
    ),
    "two columns": (
        "create table t(id integer primary key, a not null default 7, b, unique(b, a))",
        ["insert into t values(1, 7, 1), (2, 7, 2)"],
        "insert or replace into t values(3, null, 2)",
    ),
    "the time": (
        "create table t(id integer primary key, a text not null default current_date unique, v)",
        ["insert into t(id, v) values(1, 1)", "insert into t values(2, '1970-01-01', 2)"],
        "insert or replace into t values(3, null, 3)",
    ),
    "a function": (
        "create table t(id integer primary key, a not null default (min(random(), -9223372036854775808)), b, unique(a, b))",
        ["insert into t values(1, -9223372036854775808, 1), (2, 0, 2)"],
        "insert or replace into t values(3, null, 1)",
    ),
    "a word": (
        "create table t(id integer primary key, a text not null default v unique, v)",
        ["insert into t(id, v) values(1, 'other')"],
        "insert or replace into t values(2, null, 'another')",
    ),
    "a generated column": (
        "create table t(id integer primary key, a not null default 'x', g as (nullif(a, 'y')) unique)",
        ["insert into t(id, a) values(1, 'x'), (2, 'y')"],
        "update or replace t set a = null where id = 2",
    ),
    "its own default": (
        "create table t(id integer primary key, a not null default null unique)",
        ["insert into t values(1, 1)"],
        "insert or replace into t values(2, 1)",
    ),
}

CIRCULAR = {
    "itself": (
        "create table t(id integer primary key, p references t(id) on delete cascade)",
        ["insert into t values(1, null), (2, 1)"],
        "update or replace t set id = 1 where id = 2",
    ),
    "itself, further on": (
        "create table t(id integer primary key, u unique, p references t(id) on delete cascade)",
        ["insert into t values(1, 1, null), (2, 2, 1), (3, 3, 2), (4, 4, 3), (5, 5, null)"],
        "update or replace t set id = 1, u = 5 where id = 4",
    ),
    "itself, not the row": (
        "create table t(id integer primary key, p references t(id) on delete cascade)",
        ["insert into t values(1, null), (2, 1), (3, null)"],
        "insert or replace into t values(1, 3)",
    ),
    "without row id": (
        "create table t(id text primary key, p references t(id) on delete cascade) without rowid",
        ["insert into t values('a', null), ('b', 'a')"],
        "update or replace t set id = 'a' where id = 'b'",
    ),
    "two tables": (
        """create table t(id integer primary key, p references u(id) on delete cascade);
        create table u(id integer primary key, q references t(id) on delete cascade)""",
        ["insert into t values(1, null)", "insert into u values(1, 1)", "insert into t values(2, 1)"],
        "update or replace t set id = 1 where id = 2",
    ),
    "a trigger of another table": (
        """create table t(id integer primary key, v);
        create table u(id integer primary key, q references t(id) on delete cascade);
        create trigger own after delete on u begin delete from t where id = old.id; end""",
        ["insert into t values(1, 1), (2, 2)", "insert into u values(2, 1)"],
        "update or replace t set id = 1 where id = 2",
    ),
    "a trigger that inserts": (
        """create table t(id integer primary key, v);
        create table u(id integer primary key, q references t(id) on delete cascade);
        create trigger own after delete on u begin insert into t values(7, old.id); end""",
        ["insert into t values(1, 1), (2, 2)", "insert into u values(2, 1)"],
        "update or replace t set id = 1 where id = 2",
    ),
}

ANOTHER = "insert into t(id) values(99)"
"""A write that leaves no note of an earlier one."""

PARTIAL = {
    "condition alone": (
        "create table t(id integer primary key, mail, deleted); create unique index i on t(mail) where deleted = 0",
        ["insert into t values(1, 'm', 0), (2, 'm', 1)", ANOTHER],
        "update or replace t set deleted = 0 where id = 2",
    ),
    "condition in quotes, with comments": (
        'create table t(id integer primary key, mail, "where", s); '
        "create unique index i on t(mail /* where */) /* ) */ where [where] = ')' -- where\n and s <> \"it's\"",
        ["insert into t values(1, 'm', ')', 1), (2, 'm', 1, 1)", ANOTHER],
        "update or replace t set \"where\" = ')' where id = 2",
    ),
    "condition that sees more than the collation": (
        "create table t(id integer primary key, mail, s collate nocase); "
        "create unique index i on t(mail) where s = 'a' collate binary",
        ["insert into t values(1, 'm', 'a'), (2, 'm', 'A')", ANOTHER],
        "update or replace t set s = 'a' where id = 2",
    ),
    "condition on a type": (
        "create table t(id integer primary key, mail, s); create unique index i on t(mail) where typeof(s) = 'real'",
        ["insert into t values(1, 'm', 1.0), (2, 'm', 1)", ANOTHER],
        "update or replace t set s = 1.0 where id = 2",
    ),
    "condition with the table's name": (
        "create table t(id integer primary key, mail, s); create unique index i on t(mail) where t.s is not null",
        ["insert into t values(1, 'm', 1.0), (2, 'm', null)", ANOTHER],
        "update or replace t set s = 1 where id = 2",
    ),
    "condition on a column that is filled in": (
        "create table t(id integer primary key, mail, s not null default 0, g as (nullif(s, 1)));"
        " create unique index i on t(mail) where g = 0",
        ["insert into t values(1, 'm', 0), (2, 'm', 1)", ANOTHER],
        "update or replace t set s = null where id = 2",
    ),
    "collation of the index": (
        "create table t(id integer primary key, mail, s); create unique index i on t(mail collate nocase) where s",
        ["insert into t values(1, 'm', 1), (2, 'M', 0)", ANOTHER],
        "update or replace t set s = 2 where id = 2",
    ),
}


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(("schema", "rows", "write"), [*FILLED_IN.values(), *PARTIAL.values()], ids=[*FILLED_IN, *PARTIAL])
def test_what_replace_removes_is_in_the_log(path: Path, schema: str, rows: list[str], write: str, recursive: bool) -> None:
    with closing(connect(path, recursive_triggers=recursive)) as connection:
        connection.executescript(schema)
        tables = enable(str(path)).tables
        for sql in [*rows, write]:
            connection.execute(sql)
        assert_log_makes(path, connection, tables)


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(("schema", "rows", "write"), CIRCULAR.values(), ids=CIRCULAR)
def test_what_a_cascade_of_replace_removes_is_in_the_log(
    path: Path, schema: str, rows: list[str], write: str, recursive: bool
) -> None:
    with closing(connect(path, recursive_triggers=recursive, foreign_keys=True)) as connection:
        connection.executescript(schema)
        tables = enable(str(path)).tables
        for sql in [*rows, write, *rows[:1], write, "delete from t"]:
            with suppress(sqlite3.IntegrityError):
                connection.execute(sql)
            assert_log_makes(path, connection, tables, is_strict="u unique" not in schema)


def test_a_cascade_that_comes_later_is_noticed(path: Path) -> None:
    with closing(connect(path, foreign_keys=True)) as connection:
        connection.executescript("create table u(id integer primary key); insert into u values(1)")
        connection.execute("create table t(id integer primary key, p references u(id) on delete cascade)")
        tables = enable(str(path)).tables
        connection.executescript("insert into t values(1, null), (2, 1)")
        connection.execute("alter table u add column q references t(id) on delete cascade")
        assert [one.state for one in survey(str(path)).tables] == ["broken", "broken"]
        repair(str(path))
        connection.executescript("update u set q = 1; update or replace t set id = 1 where id = 2")
        assert not connection.execute("select * from t union all select * from u").fetchall()
        assert_log_makes(path, connection, tables, is_strict=False)


def test_a_partial_index_answers_the_lookup_for_rows_in_the_way(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.executescript(
            "create table t(id integer primary key, mail, deleted); create unique index i on t(mail) where deleted = 0"
        )
        enable(str(path))
        plan = connection.execute("select sql from sqlite_master where type = 'trigger' and name like '%collide'").fetchone()
    assert "(deleted = 0)" in plan[0]


def test_triggers_of_an_ordinary_table_know_nothing_of_defaults_and_conditions(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.execute("create table t(id integer primary key, a unique, b not null default 5)")
        enable(str(path))
        found = connection.execute("select group_concat(sql) from sqlite_master where type = 'trigger' and tbl_name = 't'")
        sql = found.fetchone()[0]
    assert 'new."b" is null' not in sql
    assert "coalesce(new" not in sql


def test_a_table_that_an_earlier_version_captured_without_its_defaults_is_broken(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.execute("create table t(id integer primary key, a not null default 'x' unique)")
        enable(str(path))
        connection.execute("update _penstock_shape set shape = json_remove(shape, '$.filled', '$.computed')")
    [table] = survey(str(path)).tables
    assert (table.state, "earlier version" in table.why) == ("broken", True)
    repair(str(path))
    assert not survey(str(path)).is_broken
