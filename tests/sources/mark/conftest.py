"""A table for every test, in each database that can hold one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
from desks import Desk

from deadline import PATIENCE
from penstock.sources.outbox import database


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may stall while a connection is made."""
    monkeypatch.setitem(database._DEFAULTS, "connect_timeout", int(PATIENCE))


@pytest.fixture(params=["postgres", "sqlite", "mariadb"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    match request.param:
        case "postgres":
            dsn = request.getfixturevalue("postgres_of_module")
            return Desk(dsn, lambda: psycopg.connect(dsn))
        case "sqlite":
            return Desk(str(tmp_path / "app.db"), lambda: sqlite3.connect(tmp_path / "app.db"), "?")
        case _:
            server = request.getfixturevalue("mariadb_server")
            dsn = request.getfixturevalue("mariadb_of_module")
            return Desk(dsn, lambda: server.connect(dsn.rpartition("/")[2]))
