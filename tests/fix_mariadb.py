"""A real MariaDB: one server for all tests, started when the first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.mariadb import MariaServer


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """The shared server; nobody stops it."""
    with MariaServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb_of_module(mariadb_server: MariaServer) -> str:
    """The DSN of a fresh database for all tests of a module."""
    return mariadb_server.create_database()
