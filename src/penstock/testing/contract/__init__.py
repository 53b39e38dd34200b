"""Contract suites: classes of pytest tests that a subclass completes with a rig. docs/testing.md describes them."""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("reading", "source", "replay", "parts", "sink", "failing")))

from penstock.testing.contract.failing import PoisonContract, PoisonRig, RetryContract, RetryRig  # noqa: E402
from penstock.testing.contract.parts import LanesContract, RowLeaseContract, SnapshotContract, SnapshotRig  # noqa: E402
from penstock.testing.contract.replay import (  # noqa: E402
    ReplayableRig,
    ReplayableSourceContract,
    SeekContract,
    SharedRig,
    SharedSourceContract,
)
from penstock.testing.contract.sink import SinkContract, SinkRig  # noqa: E402
from penstock.testing.contract.source import SourceContract, SourceRig  # noqa: E402

__all__ = [
    "LanesContract",
    "PoisonContract",
    "PoisonRig",
    "ReplayableRig",
    "ReplayableSourceContract",
    "RetryContract",
    "RetryRig",
    "RowLeaseContract",
    "SeekContract",
    "SharedRig",
    "SharedSourceContract",
    "SinkContract",
    "SinkRig",
    "SnapshotContract",
    "SnapshotRig",
    "SourceContract",
    "SourceRig",
]
