"""A small shop in SQLite: inserts, updates and deletes in transactions at a steady rate."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from random import Random
from threading import Event, Thread

SCHEMA = """
create table customers(id integer primary key, name text not null, city text not null);
create table orders(
    id integer primary key, customer integer not null references customers(id), status text not null, cents integer not null);
create table items(
    order_id integer not null references orders(id) on delete cascade, line integer not null,
    product text not null, quantity integer not null, cents integer not null, primary key(order_id, line));
"""
TABLES = ("customers", "orders", "items")

_CUSTOMERS, _ORDERS = 40, 150  # at most
_NAMES = ("Ada", "Bela", "Cleo", "Dara", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Kai", "Lena", "Mo", "Nia", "Otto", "Pia")
_CITIES = ("Aarhus", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haifa")
_PRODUCTS = ("tea", "cups", "kettle", "honey", "spoons", "tray", "sugar", "lemons")


def create(path: str) -> None:
    """Create an empty shop in a new database."""
    with closing(_connect(path)) as connection:
        connection.executescript(SCHEMA)


def rows(path: str, table: str) -> list[dict[str, object]]:
    """The current rows of a table."""
    with closing(_connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"select * from {table}")]


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=600, isolation_level=None)
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma synchronous = normal")
    return connection


class Shop(Thread):
    """Executes `rate` transactions per second; a few are rolled back."""

    def __init__(self, path: str, rate: float) -> None:
        super().__init__(name="shop", daemon=True)
        self.commits = self.rollbacks = 0
        self._path, self._rate, self._closing = path, rate, Event()

    def close(self) -> None:
        """Finish the current transaction, and end."""
        self._closing.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Execute transactions until closed."""
        with closing(_connect(self._path)) as connection:
            staff, due = Staff(connection, Random(7)), time.monotonic()
            while not self._closing.wait(max(0.0, due - time.monotonic())):
                due += 1 / self._rate
                if staff.act():
                    self.commits += 1
                else:
                    self.rollbacks += 1


class Staff:
    """Chooses and executes transactions."""

    def __init__(self, connection: sqlite3.Connection, random: Random) -> None:
        self._connection, self._random = connection, random

    def act(self) -> bool:
        """Execute one transaction; False if it was rolled back."""
        is_kept = self._random.random() >= 0.02
        self._connection.execute("begin immediate")
        if self._count("customers") < 3:
            self._enrol()
        elif self._count("orders") < 5 or self._random.random() < 0.4:
            self._order()
        else:
            self._random.choices([self._proceed, self._cancel, self._move, self._enrol], [6, 2, 1, 1])[0]()
        self._connection.execute("commit" if is_kept else "rollback")
        return is_kept

    def _enrol(self) -> None:
        if self._count("customers") >= _CUSTOMERS:
            self._move()
            return
        values = (self._random.choice(_NAMES), self._random.choice(_CITIES))
        self._connection.execute("insert into customers(name, city) values(?, ?)", values)

    def _move(self) -> None:
        city = self._random.choice(_CITIES)
        self._connection.execute("update customers set city = ? where id = ?", (city, self._one("customers")))

    def _order(self) -> None:
        """Insert an order with its items; delete the oldest order above the limit."""
        if self._count("orders") >= _ORDERS:
            self._connection.execute("delete from orders where id = (select min(id) from orders)")
        sql = "insert into orders(customer, status, cents) values(?, 'new', 0)"
        order = self._connection.execute(sql, (self._one("customers"),)).lastrowid
        for line in range(1, self._random.randint(1, 2) + 1):
            values = (order, line, self._random.choice(_PRODUCTS), self._random.randint(1, 5), self._random.randint(99, 4999))
            self._connection.execute("insert into items values(?, ?, ?, ?, ?)", values)
        total = "(select sum(quantity * cents) from items where order_id = orders.id)"
        self._connection.execute(f"update orders set cents = {total} where id = ?", (order,))

    def _proceed(self) -> None:
        step = "case status when 'new' then 'paid' when 'paid' then 'packed' else 'shipped' end"
        self._connection.execute(f"update orders set status = {step} where id = ?", (self._one("orders"),))

    def _cancel(self) -> None:
        self._connection.execute("delete from orders where id = ?", (self._one("orders"),))

    def _count(self, table: str) -> int:
        [(count,)] = self._connection.execute(f"select count(*) from {table}")
        return int(count)

    def _one(self, table: str) -> int:
        ids = [row[0] for row in self._connection.execute(f"select id from {table}")]
        return int(self._random.choice(ids))
