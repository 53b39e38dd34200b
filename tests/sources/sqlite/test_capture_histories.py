"""Random histories of writes: replaying the log gives the table, whatever the table and however it is written."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay import assert_log_makes, connect

from examples import examples
from penstock.sources.sqlite import log
from penstock.sources.sqlite.install import enable

SCHEMAS = {
    "without key": "create table t(a, b, c)",
    "integer key": "create table t(a integer primary key, b unique, c)",
    "row id and two unique columns": "create table t(a unique not null, b unique, c)",
    "text key, not case-sensitive": "create table t(a text collate nocase primary key not null, b text, c);"
    "create unique index tb on t(b collate nocase)",
    "composite key without row id": "create table t(a, b, c, primary key(b, a)) without rowid",
    "key without row id, unique column": "create table t(a collate nocase primary key, b unique, c) without rowid",
    "strict": "create table t(a integer primary key, b text unique, c any) strict",
    "generated column": "create table t(a integer primary key, b, c, d as (b || '') stored unique)",
    "virtual generated column": "create table t(a integer primary key, b, c, d as (abs(c)) unique)",
    "replace in the table": "create table t(a integer primary key on conflict replace, b unique on conflict replace, c)",
    "partial index": "create table t(a integer primary key, b, c); create unique index tb on t(b, c) where c > 0",
    "partial index on one column": """create table t(a integer primary key, b, c);
        create unique index tb on t(b) where c = 0 or c = 'a'""",
    "partial index, not case-sensitive": """create table t(a integer primary key, b, c collate nocase);
        create unique index tb on t(b collate nocase) where c = 'a' collate binary;
        create unique index tc on t(c) where t.b is null""",
    "unique defaults": "create table t(a integer primary key, b text not null default 1 unique, c not null default 'a' unique)",
    "a key with a default": """create table t(a text collate nocase not null default 'A', b, c not null default 0,
        primary key(a, c)) without rowid""",
    "unique defaults that replace": """create table t(a integer primary key, b not null on conflict replace default 0,
        c not null on conflict replace default (abs(-1)), unique(b, c) on conflict replace)""",
    "a generated column of a default": """create table t(a integer primary key, b not null default 1, c,
        d as (nullif(b, 2)) unique, e as (b || c) stored); create unique index te on t(e) where b > 0""",
    "a tree with a default": """create table t(a integer primary key, b not null default 2 unique,
        c references t(a) on delete cascade)""",
    "a tree without row id": """create table t(a primary key, b unique, c references t(b) on delete cascade) without rowid""",
    "two trees": """create table t(a integer primary key, b unique, c references u(a) on delete cascade);
        create table u(a integer primary key, b references t(a) on delete cascade);
        create trigger fill after insert on t begin insert or replace into u values(new.a, (select min(a) from t)); end""",
    "Penstock's names": """create table t("c0", a, b, c, "_penstock_x", "rowid", seq, shape, "row_id", place, what, "t" unique);
        create unique index _penstock_ix on t(c0, a) where seq is null""",
    "Penstock's names in a key": """create table t(a, b, c, "shape" default 7, "old_row_id" default 5,
        "rowid" as (a) stored unique, "c1",
        primary key(b, "shape")) without rowid""",
    "names of all row ids but one": "create table t(a unique, b, c, rowid, oid)",
    "odd names": 'create table t(a integer primary key, b, c, "ro""w id", rowid unique)',
    "own triggers": """create table t(a integer primary key, b unique, c); create table seen(a);
        create trigger one after insert on t begin update t set c = 9 where a = new.a and c is null; end;
        create trigger two before delete on t begin insert into seen values(old.a); end;
        create trigger three after update of b on t begin delete from t where a = new.a + 2; end""",
    "cascades": """create table t(a integer primary key, b unique, c);
        create table u(a integer primary key, b references t(a) on delete cascade on update cascade,
            c references t(b) on delete set null);
        create trigger fill after insert on t begin insert or ignore into u values(new.a, new.a, new.b); end""",
    "a tree": "create table t(a integer primary key, b unique, c references t(a) on delete cascade on update cascade)",
    "a tree that forgets": "create table t(a integer primary key, b unique, c references t(a) on delete set null)",
}


@pytest.fixture(autouse=True, scope="module")
def _reads_one_image_first() -> Iterator[None]:
    """As it does where there are many rows, which is no history that anybody could read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "FEW", -1)
        yield


small = st.sampled_from(["0", "1", "2", "3", "null", "'a'", "'A'", "1.0", "'1'", "x'61'"])
columns = st.sampled_from(["a", "b", "c"])
policy = st.sampled_from(["", " or replace", " or ignore", " or rollback", " or fail"])
row = st.tuples(small, small, small).map(lambda found: f"({', '.join(found)})")
rows = st.lists(row, min_size=1, max_size=3).map(", ".join)
setting = st.tuples(columns, small).map(" = ".join)
where = st.one_of(st.just(""), st.tuples(columns, small).map(lambda found: f" where {found[0]} is {found[1]}"))
upsert = st.sampled_from(
    ["", " on conflict do nothing", " on conflict do update set c = excluded.c", " on conflict do update set a = excluded.a, b = a"]
)

statement = st.one_of(
    st.builds("insert{} into t(a, b, c) values {}{}".format, policy, rows, upsert),
    st.builds("insert{} into t(a, b, c) select a + 1, b, c from t{}".format, policy, where),
    st.builds("update{} t set {}{}".format, policy, setting, where),
    st.builds("update{} t set a = a + 1{}".format, policy, where),
    st.builds("update{} t set {}, {}{}".format, policy, setting, setting, where),
    st.builds("update{} t set _rowid_ = {}{}".format, policy, small, where),
    st.builds("insert{} into t(_rowid_, a, b, c) values (2, 5, 6, 7)".format, policy),
    st.builds("delete from t{}".format, where),
    st.sampled_from(["begin", "begin", "commit", "commit", "rollback", "savepoint s", "rollback to s", "release s"]),
)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=examples(60))
@given(history=st.lists(statement, max_size=14), recursive=st.booleans(), foreign=st.booleans())
@example(
    history=["insert into t(a, b, c) values (1, 1, 1), (2, 2, 2)", "replace into t(a, b, c) values (1, 2, 3)"],
    recursive=False,
    foreign=True,
)
@example(
    history=["insert into t(a, b, c) values (0, 0, 0), (1, 1, 0)", "replace into t(a, b, c) values (0, 0, 0)"],
    recursive=True,
    foreign=True,
)
def test_replaying_the_log_gives_the_table(schema: str, history: list[str], recursive: bool, foreign: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        pragmas = {"recursive_triggers": recursive, "foreign_keys": foreign, "synchronous": "off"}
        with closing(connect(path, **pragmas)) as connection:
            connection.executescript(schema)
            tables = enable(str(path)).tables
            for sql in history:
                with suppress(sqlite3.Error):
                    connection.execute(sql)
            with suppress(sqlite3.Error):
                connection.execute("commit")
            assert_log_makes(path, connection, tables, is_strict=is_strict(schema))


def is_strict(schema: str) -> bool:
    """Whether no row is told twice: healing tells those again that an action of a foreign key has changed under a trigger."""
    return "on update cascade)" not in schema and "on delete cascade)" not in schema


TEMPORARY = [
    "create temp trigger counting after insert on main.t begin insert into counted values(new.a); end",
    "create temp trigger counting before update on main.t begin insert into counted values(old.a); end",
    "create temp trigger counting after delete on main.t begin delete from counted; insert into counted values(old.a); end",
    "create temp trigger refusing before insert on main.t when new.a is 3 begin select raise(ignore); end",
    "create temp trigger refusing before delete on main.t when old.a is 3 begin select raise(abort, 'no'); end",
]
"""Those that neither write to the table nor suppress what comes after the write."""


@pytest.mark.parametrize("trigger", TEMPORARY)
@settings(max_examples=examples(60))
@given(history=st.lists(statement, max_size=14), recursive=st.booleans())
def test_harmless_temporary_triggers_leave_the_log_exact(trigger: str, history: list[str], recursive: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        with closing(connect(path, recursive_triggers=recursive, synchronous="off")) as connection:
            connection.executescript(SCHEMAS["integer key"])
            tables = enable(str(path)).tables
            connection.execute("create temp table counted(a)")
            connection.execute(trigger)
            for sql in history:
                with suppress(sqlite3.Error):
                    connection.execute(sql)
            with suppress(sqlite3.Error):
                connection.execute("commit")
            assert_log_makes(path, connection, tables)
