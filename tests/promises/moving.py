"""From reader `mark` to reader `snapshot`, step by step as docs/goharvest.md says, while writers of both kinds go on."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import yaml

from deadline import until
from fix_rig import TERM
from penstock.cli import main
from penstock.outbox import stash
from program import Program, status
from servers.broker import Broker
from servers.postgres import PostgresServer

PAGE = (Path(__file__).parents[2] / "docs" / "goharvest.md").read_text()
[MOVES] = [sql for sql in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if "outbox_moves" in sql]
[DROPS] = re.findall(r"`(drop table outbox;.*?)`", PAGE)
KEYS = ("shared", "one", "two")
HEADERS = [("trace", "a"), ("trace", "ß")]
INSERT = """
insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values (now(), %s, %s, %s, '{trace,trace}', '{a,ß}') returning id
"""


class Writer(Thread):
    """Writes to a key of its own and to one that it shares, in the order of numbers; every fifth transaction is rolled back."""

    def __init__(self, dsn: str, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._dsn, self._topic, self._leaving, self.is_new = dsn, topic, Event(), Event()

    def run(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            for turn in count():
                if self._leaving.wait(0.03):
                    return
                for key in ("shared", self.name):
                    self._write(connection, key, "rolled back" if turn % 5 == 4 else "")
                if turn % 5 == 4:
                    connection.rollback()
                connection.commit()

    def _write(self, connection: psycopg.Connection[Any], key: str, remark: str) -> None:
        [(number,)] = connection.execute("update line set number = number + 1 where key = %s returning number", (key,)).fetchall()
        value = f"{number}{remark}"
        if self.is_new.is_set():
            stash(connection, self._topic, key, value, HEADERS, table="outbox2")
        else:
            assert connection.execute(INSERT, (self._topic, key, value)).fetchone()

    def end(self) -> None:
        self._leaving.set()
        if self.is_alive():
            self.join()


class Moving:
    """Both tables, both pipeline files, and two writers."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker) -> None:
        self._folder, self._server, self._broker = folder, server, broker
        self.dsn, self.topic = server.create_database(), broker.create(partitions=3)
        server.execute("create table line (key text primary key, number bigint not null)", self.dsn)
        server.execute("insert into line values ('shared', 0), ('one', 0), ('two', 0)", self.dsn)
        assert main(["outbox", "init", self.dsn, "--layout", "goharvest"]) == 0
        self.before = self._written("orders", {"table": "outbox", "reader": "mark"}, "barrier")
        self.after = self._written("orders2", {"table": "outbox2", "reader": "snapshot"}, "exactly-once")
        self.writers = [Writer(self.dsn, self.topic, name) for name in KEYS[1:]]

    def begin(self, program: Program) -> None:
        """Steps 1 to 3: everything goes to the second table, and the first one runs empty."""
        for writer in self.writers:
            writer.start()
        program.until_event("Delivered", pipeline="orders")
        assert main(["outbox", "init", self.dsn, "--table", "outbox2"]) == 0
        until(self._is_moved)
        self.writers[0].is_new.set()  # the other one goes on as it was
        until(lambda: self._rows("outbox") == 0 and status(self.before)[1][0]["backlog"] == 0, what=program.tail)
        until(lambda: self._rows("outbox2") > 0, what=program.tail)

    def finish(self, program: Program) -> None:
        """Steps 4 and 5, with the second pipeline; the first one was stopped."""
        program.until_event("Delivered", pipeline="orders2")
        self.writers[1].is_new.set()
        self.end()
        assert self._rows("outbox") == 0
        self._server.execute(DROPS, self.dsn)
        until(lambda: self._rows("outbox2") == 0, what=program.tail)

    def end(self) -> None:
        for writer in self.writers:
            writer.end()

    def made(self) -> dict[str, int]:
        """The last number of each key."""
        return dict(self._server.execute("select key, number from line", self.dsn))

    def came(self) -> dict[str, list[str]]:
        """The values of each key, in their order."""
        found: dict[str, list[str]] = defaultdict(list)
        for record in self._broker.records(self.topic):
            found[(record.key or b"").decode()].append((record.value or b"").decode())
            assert record.headers == [(name, value.encode()) for name, value in HEADERS]
        return found

    def _rows(self, table: str) -> int:
        [(found,)] = self._server.execute(f"select count(*) from {table}", self.dsn)
        return int(found)

    def _is_moved(self) -> bool:
        with psycopg.connect(self.dsn, autocommit=True) as owner:
            try:
                owner.execute(MOVES.encode())
            except psycopg.errors.LockNotAvailable:
                owner.rollback()
                return False
        return True

    def _written(self, name: str, source: dict[str, Any], delivery: str) -> Path:
        file = self._folder / f"{name}.yaml"
        sink = {"type": "kafka", "delivery": delivery, "config": {"bootstrap.servers": self._broker.servers}}
        content = {"name": name, "source": {"type": "outbox", "database": self.dsn, **source}, "sink": sink}
        file.write_text(yaml.safe_dump({**content, "state": f"{self.dsn}?connect_timeout=60", "term": TERM}))
        return file
