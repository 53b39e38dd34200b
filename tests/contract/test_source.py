"""The contract of a source, over every kind. A new kind adds a rig to source_rigs.py and a class here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from source_rigs import FilteredSqliteRig, LanesRig, MarkedRig, OutboxRig, SqliteRig

from deadline import PATIENCE
from penstock.testing import contract


class TestSqlite(contract.SharedSourceContract, contract.SeekContract, contract.SnapshotContract):
    patience = PATIENCE

    @pytest.fixture(params=[SqliteRig, FilteredSqliteRig], ids=["all tables", "some tables"])
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteRig]:
        with closing(request.param(tmp_path)) as made:
            yield made


class TestOutbox(contract.SharedSourceContract, contract.SeekContract):
    patience = PATIENCE

    @pytest.fixture
    def rig(self, postgres_of_module: str) -> Iterator[OutboxRig]:
        with closing(OutboxRig(postgres_of_module)) as made:
            yield made


class TestMarkedOutbox(contract.RowLeaseContract):
    """One pipeline has the table for itself: no other reads it, and nothing delivered is left to go back to."""

    patience = PATIENCE

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[MarkedRig]:
        with closing(MarkedRig(tmp_path)) as made:
            yield made


class TestSeveralLanes(contract.LanesContract):
    patience = PATIENCE

    @pytest.fixture
    def rig(self, tmp_path: Path) -> LanesRig:
        return LanesRig(tmp_path)
