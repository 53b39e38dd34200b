"""A real Postgres: one server for all tests, started when the first asks for it, and private ones for tests that break theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The shared server; nobody stops it."""
    with PostgresServer() as server:
        yield server


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


@pytest.fixture(scope="module")
def private_postgres() -> Iterator[PostgresServer]:
    """A server of this module's own, to stop, kill and pause; each test leaves it running."""
    with PostgresServer() as server:
        yield server
