"""Random histories of writes and migrations: once everything is healed, replaying the log gives the table."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay import connect, exact, logged, present, replayed, source_of

from examples import examples
from penstock.errors import CaptureBroken, CaptureRefused, ConfigInvalid, PenstockError
from penstock.following import follow
from penstock.source import ANONYMOUS, Window
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.source import LANE
from penstock.sources.sqlite.survey import survey
from penstock.sources.sqlite.suspend import resume, suspend

SCHEMAS = {
    "integer key": "create table t(id integer primary key, b unique, c)",
    "text key, not case-sensitive": "create table t(id text collate nocase primary key, b, c)",
    "without key": "create table t(id, b, c unique)",
    "without row id": "create table t(id, b, c unique, primary key(id, b)) without rowid",
}


class Stage:
    """A database, whoever writes to it, and a pipeline that follows."""

    def __init__(self, path: Path, writer: sqlite3.Connection) -> None:
        self.path, self.writer, self.numbers = path, writer, iter(range(1000))
        self.windows: Iterator[Window] | None = None

    def close(self) -> None:
        self.writer.close()

    @property
    def table(self) -> str:
        [(name,)] = self.writer.execute("select name from sqlite_master where type = 'table' and name glob 't*'")
        return str(name)

    @property
    def columns(self) -> list[str]:
        return [row[1] for row in self.writer.execute(f"pragma table_info({self.table})")]

    def look(self) -> None:
        """What a live pipeline does every few milliseconds."""
        source = source_of(self.path)
        try:
            self.windows = self.windows or follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
            while not next(self.windows).idle:
                pass
        except CaptureBroken:
            self.windows = None

    def add(self) -> None:
        default = ["", " default 5", " text default 5", " default 'x'"][next(self.numbers) % 4]
        self.writer.execute(f"alter table {self.table} add column n{next(self.numbers)}{default}")

    def rename(self) -> None:
        self.writer.execute(f"alter table {self.table} rename column {self.columns[-1]} to m{next(self.numbers)}")

    def rename_table(self) -> None:
        self.writer.execute(f"alter table {self.table} rename to t{next(self.numbers)}")

    def drop(self) -> None:
        self.writer.execute(f"alter table {self.table} drop column {self.columns[-1]}")

    def by_django(self) -> None:
        self.rebuild("new__{}")

    def by_alembic(self) -> None:
        self.rebuild("_alembic_tmp_{}")

    def by_sqlite_utils(self) -> None:
        self.rebuild("{}_new_2f1c")

    def by_recipe(self) -> None:
        """The procedure of SQLite's own documentation, which creates indexes and triggers again."""
        self.rebuild("new_{}", self.made("tbl_name = '{t}' and type in ('index', 'trigger')"))

    def rebuild(self, scratch: str, again: Sequence[str] = ()) -> None:
        table = self.table
        fresh = scratch.format(table)
        [(sql,)] = self.writer.execute("select sql from sqlite_master where name = ?", (table,))
        self.writer.executescript(
            f"begin; create table {fresh}{sql[sql.index('(') :].replace('unique', '')}; insert into {fresh} select * from {table};"
            f"update {fresh} set b = b || 'r' where b = 1; drop table {table}; alter table {fresh} rename to {table};"
            + "".join(f"{one};" for one in again)
            + "commit"
        )

    def recreate_triggers(self) -> None:
        """As those do who want to write without them."""
        which = f"tbl_name = '{self.table}' and type = 'trigger'"
        names = [name for (name,) in self.writer.execute(f"select name from sqlite_master where {which}")]
        again = self.made(which)
        self.writer.execute("begin")
        for name in names:
            self.writer.execute(f"drop trigger {name}")
        self.writer.execute(f"update {self.table} set b = b || 'r' where b = 1")
        for sql in again:
            self.writer.execute(sql)
        self.writer.execute("commit")

    def dump(self) -> None:
        """Into a new file, which takes the place of the old one."""
        fresh = self.path.with_name("dumped.db")
        with closing(connect(fresh, synchronous="off")) as other:
            other.executescript("\n".join(self.writer.iterdump()))
        self.writer.close()
        for name in (f"{self.path}-wal", f"{self.path}-shm"):
            Path(name).unlink(missing_ok=True)
        fresh.replace(self.path)
        self.writer = connect(self.path, synchronous="off")

    def made(self, which: str) -> list[str]:
        found = self.writer.execute(
            f"select sql from sqlite_master where sql is not null and {which.format(t=self.table)} order by rowid"
        )
        return [sql for (sql,) in found]

    def index(self) -> None:
        self.writer.execute(f"create unique index i{next(self.numbers)} on {self.table}(b)")

    def trigger(self) -> None:
        self.writer.execute(
            f"create trigger r{next(self.numbers)} after insert on {self.table} begin"
            f" update {self.table} set b = 'late' where id = new.id and b = 2; end"
        )

    def vacuum(self) -> None:
        self.writer.execute("vacuum")

    def suspend(self) -> None:
        suspend(str(self.path))

    def resume(self) -> None:
        resume(str(self.path))

    def repair(self) -> None:
        repair(str(self.path), ".*")

    def enable(self) -> None:
        enable(str(self.path))

    def write(self, sql: str) -> None:
        self.writer.execute(sql.format(t=self.table, last=self.columns[-1]))


small = st.sampled_from(["0", "1", "2", "'a'", "'A'", "1.0", "'1'"])
writes = st.one_of(
    st.builds("insert into {{t}}(id, b) values({}, {})".format, small, small),
    st.builds("replace into {{t}}(id, b) values({}, {})".format, small, small),
    st.builds("update or replace {{t}} set b = {} where id = {}".format, small, small),
    st.builds("update or replace {{t}} set id = {}".format, small),
    st.builds("update {{t}} set {{last}} = {} where id = {}".format, small, small),
    st.builds("delete from {{t}} where id = {}".format, small),
)
rebuilds = ["by_django", "by_alembic", "by_sqlite_utils", "by_recipe", "recreate_triggers", "dump"]
deeds = [*rebuilds, "add", "rename", "rename_table", "drop", "index", "trigger", "suspend", "resume", "repair", "enable", "vacuum"]
steps = st.one_of(writes, writes, st.sampled_from([*deeds, *["look"] * len(deeds)]))


def perform(stage: Stage, step: str) -> None:
    deed: Callable[[], None] = getattr(stage, step, None) or (lambda: stage.write(step))
    with suppress(sqlite3.Error, ConfigInvalid, CaptureRefused):
        deed()
    if stage.writer.in_transaction:
        stage.writer.execute("rollback")


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=examples(80))
@given(history=st.lists(steps, max_size=25))
@example(history=["insert into {t}(id, b) values(1, 1)", "suspend", "drop", "replace into {t}(id, b) values(2, 1)", "resume"])
@example(history=["look", "insert into {t}(id, b) values(2, 2)", "add", "delete from {t} where id = 2", "look", "rename", "look"])
@example(
    history=["insert into {t}(id, b) values(1, 1)", "look", "by_django", "delete from {t} where id = 1", "look", "enable", "look"]
)
@example(history=["insert into {t}(id, b) values('a', 1)", "suspend", "update or replace {t} set id = 'A'", "resume"])
@example(history=["rename_table", "by_django"])
@example(history=["insert into {t}(id, b) values(1, 1)", "look", "by_recipe", "look"])
@example(history=["insert into {t}(id, b) values(1, 1)", "suspend", "recreate_triggers", "vacuum", "resume"])
@example(history=["look", "trigger", "insert into {t}(id, b) values(1, 2)", "look"])
def test_replaying_a_healed_log_gives_the_table(schema: str, history: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        stage = Stage(path, connect(path, synchronous="off"))
        with closing(stage):
            stage.writer.execute(schema)
            enable(str(path))
            for step in history:
                perform(stage, step)
            heal_all(path)
            rows = replayed(logged(path), is_strict=False)
            assert sorted(map(exact, rows.get(stage.table, {}).values()), key=repr) == present(stage.writer, stage.table)
            assert not any(found for table, found in rows.items() if table != stage.table)


def heal_all(path: Path) -> None:
    """The one command that the state asks for; three if nobody can know that a table which was rebuilt was also renamed."""
    if any(table.state == "suspended" for table in survey(str(path)).tables):
        resume(str(path))
    try:
        logged(path)
    except PenstockError:
        if any("was dropped" in done for done in repair(str(path)).tables.values()):
            enable(str(path))
            repair(str(path), ".*")
