from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from replay import connect

from penstock.sources.sqlite.install import enable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """A database with a captured table `orders` and another `items`."""
    with closing(connect(path)) as connection:
        connection.execute("create table orders(id integer primary key, status text, total)")
        connection.execute("create table items(order_id, line, what text, primary key(order_id, line)) without rowid")
        enable(str(path))
        yield connection
