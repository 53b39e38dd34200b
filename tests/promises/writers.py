"""Applications that write to an outbox until they are ended: some transactions are rolled back, some commit late."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from threading import Event, Thread
from typing import Any

import psycopg

from penstock.outbox import stash_many

ROWS = 20
FULL = 500
INSERT = """
insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values (now(), %s, %s, %s, '{testId}', '{T1}')
"""

Connection = psycopg.Connection[Any]
Row = tuple[str, str]


class Writer(Thread, ABC):
    """Twenty rows a transaction over ten keys; every fifth is rolled back, and one that lasts for seven turns gets a row in each.

    It waits while the table is full: on a slow host the program has no more rows to carry than on a fast one.
    """

    def __init__(self, dsn: str, topic: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._dsn, self._topic, self._leaving, self.made, self.late = dsn, topic, Event(), list[int](), list[str]()

    @abstractmethod
    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write these keys and values."""

    def run(self) -> None:
        with psycopg.connect(self._dsn) as writer, psycopg.connect(self._dsn) as late:
            for number in count():
                if self._is_over(writer):
                    break
                self.insert(late, [("late", f"late {number}")])
                self._write(writer, number)
                if number % 7 == 6:
                    late.commit()
            late.commit()
            self.late = [f"late {n}" for n in range(number)]

    def _is_over(self, writer: Connection) -> bool:
        """Whether to end; answers when there is room for more rows."""
        while not self._leaving.wait(0.1):
            [(rows,)] = writer.execute("select count(*) from outbox").fetchall()
            writer.commit()
            if rows < FULL:
                return False
        return True

    def _write(self, writer: Connection, number: int) -> None:
        numbers = range(number * ROWS, number * ROWS + ROWS)
        self.insert(writer, [(f"key {n % 10}", str(n)) for n in numbers])
        if number % 5 == 4:
            writer.rollback()
            return
        writer.commit()
        self.made += numbers

    def end(self) -> None:
        self._leaving.set()
        self.join()


class Stashed(Writer):
    """Writes to a table of ours."""

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        stash_many(connection, [(self._topic, key, value, {"testId": "T1"}) for key, value in rows])


class Harvested(Writer):
    """Writes to a table of goharvest."""

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        connection.cursor().executemany(INSERT, [(self._topic, key, value) for key, value in rows])
