"""A small shop in SQLite that keeps changing, and the truth about what was committed to it."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any

from deadline import PATIENCE
from penstock.sources.sqlite.install import enable

SCHEMA = """
create table customers(id integer primary key, name text not null, email text unique);
create table orders(id integer primary key, customer integer, total real, note blob);
create table items(order_id integer, line integer, sku text, quantity integer, primary key(order_id, line)) without rowid;
create table stock(sku text primary key, on_hand integer not null check(on_hand >= 0));
"""
KEYS = {"customers": ("id",), "orders": ("id",), "items": ("order_id", "line"), "stock": ("sku",)}

Row = dict[str, Any]


class Shop:
    """The database; `log` has a fact for every committed change, by its position, written down by the writer itself."""

    def __init__(self, path: Path) -> None:
        self.path, self.log, self.is_migrated, self.has_room = path, dict[int, Row](), False, True
        self._lock, self._new = Lock(), 1
        with closing(self._connect()) as connection:
            connection.executescript(SCHEMA)
        enable(str(path), wal=True)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction of a writer; what raises inside rolls back and leaves no truth behind."""
        with self._lock, closing(self._connect()) as connection:
            connection.execute("begin immediate")
            if not self.has_room:  # the file may not grow
                connection.execute("pragma max_page_count = 1")
            try:
                yield (work := Transaction(connection, self.is_migrated))
            except BaseException:
                connection.rollback()  # SQLite itself may have done so
                raise
            connection.execute("commit")
            self.log |= work.facts

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody writes meanwhile."""
        with self._lock:
            yield

    def sell(self, changes: int = 1) -> int:
        """So many new orders, each in its own transaction; the position of the last."""
        for _ in range(changes):
            with self.transaction() as work:
                work.put("orders", id=self._number(), customer=1, total=9.5, note=None)
        return self.head

    def _number(self) -> int:
        self._new += 1
        return 1_000_000 + self._new

    @property
    def head(self) -> int:
        """The position of the last committed change."""
        if not self.is_migrated:
            return max(self.log, default=0)
        with closing(self._connect()) as connection:
            return Transaction(connection).head()

    def tables(self) -> dict[str, list[Row]]:
        """What is in the shop now, as a webhook would show it."""
        with closing(self._connect()) as connection:
            return {table: [_shown(row) for row in connection.execute(f"select * from {table}")] for table in KEYS}

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("pragma synchronous = normal")  # processes die here, machines do not
        return connection


class Transaction:
    """Statements of one transaction, each with the facts that it should be logged as."""

    def __init__(self, connection: sqlite3.Connection, is_migrated: bool = False) -> None:
        self._connection, self.facts, self._is_migrated = connection, dict[int, Row](), is_migrated
        self._seen = self.head()

    def put(self, table: str, **row: Any) -> None:
        names = ", ".join(row)
        self._connection.execute(f"insert into {table}({names}) values({', '.join('?' * len(row))})", list(row.values()))
        self._note({"table": table, "op": "insert", "key": _key(table, row), "before": None, "after": _shown(row)})

    def alter(self, table: str, before: Row, **values: Any) -> None:
        after = before | values
        where, key = _where(table, before)
        settings = ", ".join(f"{name} = ?" for name in values)
        self._connection.execute(f"update {table} set {settings} where {where}", [*values.values(), *key])
        images = {"before": _shown(before), "after": _shown(after)}
        self._note({"table": table, "op": "update", "key": _key(table, after), **images})

    def drop(self, table: str, before: Row) -> None:
        where, key = _where(table, before)
        self._connection.execute(f"delete from {table} where {where}", key)
        self._note({"table": table, "op": "delete", "key": _key(table, before), "before": _shown(before), "after": None})

    def many(self, table: str, op: str, sql: str, *values: Any) -> None:
        """A statement that changes several rows."""
        rows = self._connection.execute(sql, values).rowcount
        self._note(*({"table": table, "op": op} for _ in range(rows)))

    def rows(self, table: str, chance: Random, most: int) -> list[Row]:
        """Some rows, chosen by chance."""
        order = ", ".join(KEYS[table])
        found = [dict(row) for row in self._connection.execute(f"select * from {table} order by {order}")]
        return chance.sample(found, min(most, len(found)))

    def _note(self, *facts: Row) -> None:
        head = self.head()
        if self._is_migrated:  # where capture is suspended, changes are told later and otherwise
            self.facts = {head: {}}
            return
        self.facts |= dict(zip(range(self._seen + 1, head + 1), facts, strict=True))
        self._seen = head

    def head(self) -> int:
        return int(self._connection.execute("select coalesce(max(seq), 0) from _penstock_log").fetchone()[0])


class Keeper(Thread):
    """Keeps the shop changing, by seed, until stopped."""

    def __init__(self, shop: Shop, seed: int, rest: float = 0.02) -> None:
        super().__init__(name="keeper of the shop", daemon=True)
        self.shop, self._chance, self._rest = shop, Random(seed), rest
        self._leaving, self.error, self.commits, self.rollbacks = Event(), None, 0, 0

    def run(self) -> None:
        """Act until stopped."""
        try:
            while not self._leaving.wait(self._rest * self._chance.random() * 2):
                self.act()
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        """Stop, and raise what went wrong."""
        self._leaving.set()
        self.join(PATIENCE)
        if self.error:
            raise self.error

    def act(self) -> None:
        """One random transaction; one in ten is rolled back."""
        try:
            with self.shop.transaction() as work:
                for _ in range(self._chance.choice((1, 1, 1, 3, 8))):
                    self._chance.choice(self.DEEDS)(self, work)
                self._regret_perhaps()
        except (_Regretted, sqlite3.IntegrityError):
            self.rollbacks += 1
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self.rollbacks += 1
        else:
            self.commits += 1

    def _regret_perhaps(self) -> None:
        if self._chance.random() < 0.1:
            raise _Regretted

    def _welcome(self, work: Transaction) -> None:
        number = self._chance.randrange(200)
        work.put("customers", id=number, name=f"Ann {number} \u20ac", email=f"{self._chance.randrange(150)}@example.org")

    def _order(self, work: Transaction) -> None:
        number = self._chance.randrange(500)
        work.put("orders", id=number, customer=1, total=self._chance.random() * 1e3, note=self._chance.randbytes(4))
        for line in range(self._chance.randrange(3)):
            work.put("items", order_id=number, line=line, sku=f"s{line}", quantity=1)

    def _restock(self, work: Transaction) -> None:
        sku = f"s{self._chance.randrange(30)}"
        have = [row for row in work.rows("stock", self._chance, 99) if row["sku"] == sku]
        if have:
            work.alter("stock", have[0], on_hand=have[0]["on_hand"] + self._chance.randrange(-2, 9))
        else:
            work.put("stock", sku=sku, on_hand=1)

    def _correct(self, work: Transaction) -> None:
        table, values = self._chance.choice(
            (("customers", {"name": "Bob"}), ("orders", {"total": 0.1}), ("items", {"quantity": 7}))
        )
        for row in work.rows(table, self._chance, 1):
            work.alter(table, row, **values)

    def _renumber(self, work: Transaction) -> None:
        """Change a key; it may be one that was there before."""
        for row in work.rows("customers", self._chance, 1):
            work.alter("customers", row, id=self._chance.randrange(200))

    def _forget(self, work: Transaction) -> None:
        table = self._chance.choice(list(KEYS))
        for row in work.rows(table, self._chance, 2):
            work.drop(table, row)

    def _audit(self, work: Transaction) -> None:
        work.many("stock", "update", "update stock set on_hand = on_hand + 1")
        work.many("orders", "delete", "delete from orders where id % 50 = ? and id < 500", self._chance.randrange(50))

    DEEDS = (_welcome, _order, _order, _restock, _restock, _correct, _renumber, _forget, _audit)


class _Regretted(Exception):
    """Roll back."""


def _key(table: str, row: Row) -> Row:
    return {name: row[name] for name in KEYS[table]}


def _where(table: str, row: Row) -> tuple[str, list[Any]]:
    return " and ".join(f"{name} = ?" for name in KEYS[table]), [row[name] for name in KEYS[table]]


def _shown(row: Any) -> Row:
    return {name: _json(row[name]) for name in row.keys()}  # noqa: SIM118 - a sqlite3.Row is no mapping


def _json(value: Any) -> Any:
    return {"$blob": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
