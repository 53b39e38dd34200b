"""A real MariaDB: one server for all tests, started when the first needs it."""

from __future__ import annotations

import pytest

from fix_servers import shared
from servers.mariadb import MariaServer


@pytest.fixture(scope="session")
def mariadb_server() -> MariaServer:
    """The server that all workers share; no test stops it."""
    found: MariaServer = shared("mariadb", MariaServer)
    return found


@pytest.fixture(scope="module")
def mariadb_of_module(mariadb_server: MariaServer) -> str:
    """The DSN of a fresh database for all tests of a module."""
    return mariadb_server.create_database()
