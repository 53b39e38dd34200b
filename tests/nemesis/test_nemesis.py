"""Whatever is killed, stopped, slowed, locked or lied to: nothing lost, nothing out of order, repeats honest."""

import os
import random

from fix_rig import Sampler
from nemesis import Nemesis
from penstock.testing import oracle
from shop import Keeper

STEPS = int(os.environ.get("PENSTOCK_NEMESIS_STEPS", "10"))


def test_nothing_is_lost_or_out_of_order_whatever_is_broken(rig, note):
    seed = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1 << 32))
    note(f"PENSTOCK_SEED={seed}")
    rig.write(timeout="5s")
    nemesis, keeper = Nemesis(rig, seed), Keeper(rig.shop, seed, rest=0.04)
    with Sampler(rig) as sampler:
        keeper.start()
        nemesis.torment(STEPS)
        keeper.stop()
        nemesis.heal()
        rig.until_settled()
        assert nemesis.end() == [0, 0], nemesis.tails()
    requests, seen = rig.receiver.requests, rig.deliveries()
    late = len(seen) - len(oracle.current(seen))
    note(f"{sum(nemesis.counts.values())} steps: {dict(nemesis.counts.most_common())}")
    note(
        f"{rig.shop.head} changes, {len(requests)} requests, {len(seen) - late - rig.shop.head} repeats, {late} of deposed leaders"
    )
    assert rig.breaches(sampler.marks) == []
