"""Random histories of writes and migrations: once everything is healed, replaying the log gives the table."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay import connect, exact, logged, present, replayed, source_of

from examples import examples
from penstock.errors import CaptureBroken, CaptureRefused, ConfigInvalid, PenstockError
from penstock.source import Window
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
            self.windows = self.windows or source.follow(LANE, source.begin(LANE, "beginning"))
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

    def rebuild(self) -> None:
        """As Django does."""
        table = self.table
        [(sql,)] = self.writer.execute("select sql from sqlite_master where name = ?", (table,))
        self.writer.executescript(
            f"begin; create table new__t{sql[sql.index('(') :].replace('unique', '')}; insert into new__t select * from {table};"
            f"update new__t set b = b || 'r' where b = 1; drop table {table}; alter table new__t rename to {table}; commit"
        )

    def index(self) -> None:
        self.writer.execute(f"create unique index i{next(self.numbers)} on {self.table}(b)")

    def trigger(self) -> None:
        self.writer.execute(
            f"create trigger r{next(self.numbers)} after insert on {self.table} begin"
            f" update {self.table} set b = 'late' where id = new.id and b = 2; end"
        )

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
deeds = ["add", "rename", "rename_table", "drop", "rebuild", "index", "trigger", "suspend", "resume", "repair", "enable"]
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
    history=["insert into {t}(id, b) values(1, 1)", "look", "rebuild", "delete from {t} where id = 1", "look", "enable", "look"]
)
@example(history=["insert into {t}(id, b) values('a', 1)", "suspend", "update or replace {t} set id = 'A'", "resume"])
@example(history=["rename_table", "rebuild"])
@example(history=["look", "trigger", "insert into {t}(id, b) values(1, 2)", "look"])
def test_replaying_a_healed_log_gives_the_table(schema: str, history: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.db")
        with closing(connect(path, synchronous="off")) as writer:
            writer.execute(schema)
            enable(str(path))
            stage = Stage(path, writer)
            for step in history:
                perform(stage, step)
            heal_all(path)
            rows = replayed(logged(path), is_strict=False)
            assert sorted(map(exact, rows.get(stage.table, {}).values()), key=repr) == present(writer, stage.table)
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
