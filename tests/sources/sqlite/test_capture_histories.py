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
            assert_log_makes(path, connection, tables, is_strict="on update cascade)" not in schema)
