"""A table for every test, in each database that can hold one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from desks import Desk


@pytest.fixture(params=["postgres"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    if request.param == "postgres":
        dsn = request.getfixturevalue("postgres_of_module")
        yield Desk(dsn, lambda: psycopg.connect(dsn))
