"""From reader `mark` to reader `snapshot`, as docs/goharvest.md says, while writers of both kinds go on."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count, groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import yaml

from deadline import until
from penstock.cli import main
from penstock.outbox import stash
from penstock.testing.broker import Broker
from penstock.testing.postgres import PostgresServer
from program import Program, status

PAGE = (Path(__file__).parents[2] / "docs" / "goharvest.md").read_text()
[MOVES] = [sql for sql in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if "outbox_moves" in sql]
[DROPS] = re.findall(r"`(drop table outbox;.*?)`", PAGE)
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
            stash(connection, self._topic, key, value, [("trace", "a"), ("trace", "ß")], table="outbox2")
        else:
            assert connection.execute(INSERT, (self._topic, key, value)).fetchone()

    def end(self) -> None:
        self._leaving.set()
        self.join()


def pipeline(folder: Path, name: str, dsn: str, broker: Broker, source: dict[str, Any], delivery: str) -> Path:
    file = folder / f"{name}.yaml"
    sink = {"type": "kafka", "delivery": delivery, "config": {"bootstrap.servers": broker.servers}}
    file.write_text(
        yaml.safe_dump({"name": name, "source": {"type": "outbox", "database": dsn, **source}, "sink": sink, "state": dsn})
    )
    return file


def test_nothing_is_lost_and_no_key_goes_back_on_the_way_from_mark_to_snapshot(
    postgres: str, postgres_server: PostgresServer, broker: Broker, tmp_path: Path
) -> None:
    topic, names = broker.create(partitions=3), ["shared", "one", "two"]
    postgres_server.execute("create table line (key text primary key, number bigint not null)", postgres)
    postgres_server.execute("insert into line values ('shared', 0), ('one', 0), ('two', 0)", postgres)
    assert main(["outbox", "init", postgres, "--layout", "goharvest"]) == 0
    before = pipeline(tmp_path, "orders", postgres, broker, {"table": "outbox", "reader": "mark"}, "barrier")
    after = pipeline(tmp_path, "orders2", postgres, broker, {"table": "outbox2", "reader": "snapshot"}, "exactly-once")
    one, two = writers = [Writer(postgres, topic, name) for name in names[1:]]
    programs = [Program(tmp_path, before)]

    def rows(table: str) -> int:
        [(found,)] = postgres_server.execute(f"select count(*) from {table}", postgres)
        return int(found)

    def is_moved() -> bool:
        with psycopg.connect(postgres, autocommit=True) as owner:
            try:
                owner.execute(MOVES.encode())
            except psycopg.errors.LockNotAvailable:
                owner.rollback()
                return False
        return True

    try:
        for writer in writers:
            writer.start()
        programs[0].until_event("Delivered")
        assert main(["outbox", "init", postgres, "--table", "outbox2"]) == 0
        until(is_moved)
        one.is_new.set()  # the other one goes on as it was
        until(lambda: rows("outbox") == 0 and status(before)[1][0]["backlog"] == 0, what=programs[0].tail)
        assert rows("outbox2") > 0
        assert programs[0].terminate() == 0
        programs.append(Program(tmp_path, after))
        programs[1].until_event("Delivered")
        two.is_new.set()
        for writer in writers:
            writer.end()
        assert rows("outbox") == 0
        postgres_server.execute(DROPS, postgres)
        until(lambda: rows("outbox2") == 0, what=programs[1].tail)
        assert programs[1].terminate() == 0
    finally:
        for writer in writers:
            writer.end()
        for program in programs:
            program.kill_tree()

    came: dict[str, list[str]] = defaultdict(list)
    for record in broker.records(topic):
        came[(record.key or b"").decode()].append((record.value or b"").decode())
        assert record.headers == [("trace", b"a"), ("trace", "ß".encode())]
    made = dict(postgres_server.execute("select key, number from line", postgres))
    assert sorted(made) == sorted(names)
    for key, last in made.items():
        assert [value for value, _ in groupby(came[key])] == [str(number) for number in range(1, int(last) + 1)]
