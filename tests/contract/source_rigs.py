"""How to make each kind of source, and how to make changes in it. A new source adds a rig, and a class to test_source.py."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

import psycopg

from deadline import PATIENCE
from many_lanes import LanesSource
from penstock.outbox import stash_many
from penstock.source import Source
from penstock.sources.outbox.mark.databases import create
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import OutboxSource
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import SqliteSource


class SqliteRig:
    def __init__(self, folder: Path, tables: str | None = None) -> None:
        self.path, self.written = folder / "shop.db", 0
        self.source: Source = SqliteSource(database=str(self.path), tables=tables)
        self._make()

    def _make(self) -> None:
        self.writer = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        self.writer.execute("pragma journal_mode = wal")
        self.writer.execute("pragma synchronous = off")
        self.writer.execute("create table orders(id integer primary key, state text)")
        self.writer.execute("create table aside(id integer primary key)")
        enable(str(self.path))

    def commit(self, changes: int) -> None:
        self.writer.execute("begin")
        for _ in range(changes):
            self.written += 1
            self.writer.execute("insert into orders values(?, 'new')", (self.written,))
        self.writer.execute("commit")

    def rest(self) -> None:
        for name in (self.path, Path(f"{self.path}-wal")):
            os.utime(name, (time.time() - 10, time.time() - 10))

    def keys(self) -> Collection[str]:
        return [f'{{"id":{number}}}' for (number,) in self.writer.execute("select id from orders")]

    def remove(self) -> str:
        (number,) = self.writer.execute("delete from orders where id = (select min(id) from orders) returning id").fetchone()
        return f'{{"id":{number}}}'

    def replace(self) -> None:
        self.close()
        for name in self.path.parent.glob("shop.db*"):
            name.unlink()
        written, self.written = self.written, 0
        self._make()
        self.commit(written)

    def close(self) -> None:
        self.writer.close()


class FilteredSqliteRig(SqliteRig):
    """Between the changes that are wanted lie others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "orders")

    def commit(self, changes: int) -> None:
        self.writer.execute("insert into aside default values")
        super().commit(changes)
        self.writer.execute("insert into aside default values")


class OutboxRig:
    def __init__(self, dsn: str) -> None:
        self._dsn, self._table, self.written = dsn, f"box_{uuid4().hex[:8]}", 0
        self.source: Source = OutboxSource(database=dsn, table=self._table)
        self.writer = psycopg.connect(dsn)
        init(dsn, Names(self._table))

    def commit(self, changes: int) -> None:
        stash_many(self.writer, [("orders", str(self.written + n), f"value {n}") for n in range(changes)], table=self._table)
        self.writer.commit()
        self.written += changes

    def rest(self) -> None:
        pass

    def replace(self) -> None:
        for suffix in ("", "_window", "_life", "_reader"):
            self.writer.execute(f"drop table {self._table}{suffix}")
        self.writer.commit()
        init(self._dsn, Names(self._table))
        written, self.written = self.written, 0
        self.commit(written)

    def close(self) -> None:
        self.writer.close()


class MarkedRig:
    """A table that is read by marks, and by one pipeline alone."""

    def __init__(self, folder: Path) -> None:
        path, self.written = folder / "app.db", 0
        self.source: Source = MarkSource(database=str(path))
        create(str(path), "outbox")
        self.writer = sqlite3.connect(path, timeout=PATIENCE)
        self.writer.execute("pragma synchronous = off")

    def commit(self, changes: int) -> None:
        for _ in range(changes):
            self.written += 1
            self.writer.execute(
                "insert into outbox (kafka_topic, kafka_key, kafka_value) values ('orders', ?, 'v')", (self.written,)
            )
        self.writer.commit()

    def close(self) -> None:
        self.writer.close()


class LanesRig:
    """Every commit is to the first lane; beside it another lane appears, and ends at the next commit."""

    def __init__(self, folder: Path) -> None:
        self.lanes, self.written, self.commits = LanesSource(folder=str(folder)), 0, 0
        self.source: Source = self.lanes
        self.lanes.write("a", 0, 0)

    def commit(self, changes: int) -> None:
        self.written += changes
        self.lanes.write("a", 0, self.written)
        if self.commits:
            self.lanes.write(f"b{self.commits}", 1000, 1000 + self.commits, has_ended=True)
        self.commits += 1
        self.lanes.write(f"b{self.commits}", 1000, 1000 + self.commits)

    def close(self) -> None:
        pass
