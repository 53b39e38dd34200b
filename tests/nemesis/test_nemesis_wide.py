"""The same nemesis over everything a pipeline can do: a snapshot, transforms, parallel requests, batches, migrations, rewinds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wide import WideNemesis, wide_rig

from fix_rig import Rig
from shop import Keeper

STEPS = int(os.environ.get("PENSTOCK_NEMESIS_STEPS", "10"))


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Rig]:
    with wide_rig(tmp_path) as rig:
        yield rig


def test_the_copy_is_right_and_every_row_in_order_whatever_is_broken_or_migrated(wide: Rig, note: Any) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1 << 32))
    note(f"PENSTOCK_SEED={seed}")
    nemesis, keeper = WideNemesis(wide, seed), Keeper(wide.shop, seed, rest=0.04)
    keeper.start()
    nemesis.torment(STEPS)
    keeper.stop()
    nemesis.heal()
    wide.until_settled()
    assert nemesis.end() == [0, 0], nemesis.tails()
    steps, rewinds = sum(nemesis.counts.values()), len(nemesis.rewinds)
    note(f"{steps} steps: {dict(nemesis.counts.most_common())}; {len(wide.deliveries())} deliveries, {rewinds} rewinds")
    assert [breach for found in nemesis.verdicts().values() for breach in found] == []
