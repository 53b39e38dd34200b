"""A real Postgres: one server for all tests, started when the first needs it, and one for tests that break it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fix_servers import mended, shared
from servers.postgres import PostgresServer


def start_postgres(_: Path) -> PostgresServer:
    """A server with a folder of its own, and room for the sessions of all workers."""
    return PostgresServer({"max_connections": "400"})


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """The server that all workers share; no test stops it."""
    found: PostgresServer = shared("postgres", start_postgres)
    return found


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a fresh database for one test."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="module")
def postgres_of_module(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a fresh database for all tests of a module."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def empty_state(postgres_of_module: str, postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a state database in which nothing is recorded: much cheaper than a new one for each test."""
    yield postgres_of_module
    if postgres_server.execute("select to_regclass('penstock_state.about')", postgres_of_module) != [(None,)]:
        tables = "select relname from pg_class where relkind = 'r' and relnamespace = 'penstock_state'::regnamespace"
        for (table,) in postgres_server.execute(f"{tables} and relname <> 'about'", postgres_of_module):
            postgres_server.execute(f"delete from penstock_state.{table}", postgres_of_module)


@pytest.fixture(scope="session")
def breakable_postgres() -> Iterator[PostgresServer]:
    """A server to stop, kill and pause; each test leaves it running, and if one fails, it is brought back."""
    with PostgresServer() as server:

        def mend() -> None:
            server.resume()
            if not server.is_running():
                server.start()

        with mended("breakable_postgres", mend):
            yield server
