"""An outbox of its own for every test, in one database for each module."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from boxes import Box, Values

from deadline import PATIENCE
from penstock.sources.outbox import database, settle


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may stall while a connection is made, or while something is purged."""
    monkeypatch.setattr(settle, "_BUDGET", PATIENCE)
    monkeypatch.setitem(database._DEFAULTS, "connect_timeout", int(PATIENCE))


@pytest.fixture
def box(postgres_of_module: str) -> Iterator[Box]:
    made = Box(postgres_of_module, f"box_{uuid4().hex[:8]}")
    assert made.start
    yield made
    made.close()


@pytest.fixture
def values() -> Values:
    """The values of text messages."""
    return lambda changes: [None if change.after is None else change.after.decode() for change in changes]
