"""The shop: real transactions that leave something of every kind in the log."""

from __future__ import annotations

import sqlite3
from itertools import product
from pathlib import Path
from random import Random

import pytest

from deadline import until
from penstock.demo import shop
from penstock.sources.sqlite import install


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    shop.create(path)
    install.enable(path, wal=True)
    return path


def head(path: str) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("select coalesce(max(seq), 0) from _penstock_log").fetchone()[0])


def test_the_staff_inserts_updates_and_deletes(database: str) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("pragma foreign_keys = on")
    staff = shop.Staff(connection, Random(1))
    for _ in range(400):
        staff.act()
    found = set(connection.execute("select t.shape, op from _penstock_log t"))
    connection.close()
    assert len({shape for shape, _ in found}) == len(shop.TABLES)
    assert {op for _, op in found} == {"insert", "update", "delete"}


def test_a_deed_that_is_rolled_back_leaves_nothing(database: str) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    staff = shop.Staff(connection, Random(1))
    outcomes = []
    for _ in range(300):
        before = head(database)
        outcomes.append((staff.act(), head(database) > before))
    connection.close()
    assert set(outcomes) == {(True, True), (False, False)}


def test_the_shop_stays_small(database: str) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("pragma foreign_keys = on")
    staff = shop.Staff(connection, Random(1))
    for _ in range(1500):
        staff.act()
    connection.close()
    assert len(shop.rows(database, "customers")) <= 40
    assert len(shop.rows(database, "orders")) <= 150


def test_the_shop_keeps_its_pace_until_it_is_closed(database: str) -> None:
    open_shop = shop.Shop(database, rate=500)
    open_shop.start()
    until(lambda: open_shop.commits >= 50)
    open_shop.close()
    assert not open_shop.is_alive()
    assert head(database) >= open_shop.commits


def test_a_shop_that_never_opened_can_be_closed(database: str) -> None:
    shop.Shop(database, rate=1).close()
    assert head(database) == 0
    assert [shop.rows(*each) for each in product([database], shop.TABLES)] == [[], [], []]
