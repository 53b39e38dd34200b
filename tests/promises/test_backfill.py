"""Rows that are there already come first, then the stream: killed in the middle, beside a writer, and as a batch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from deadline import until
from fix_rig import Rig
from penstock.testing import oracle
from shop import KEYS, Keeper


@pytest.fixture
def rig(tmp_path: Path):
    with Rig(tmp_path, start="snapshot", batch={"size": 5}) as made:
        keeper = Keeper(made.shop, seed=7)
        for _ in range(300):
            keeper.act()
        yield made


def refreshes(rig: Rig) -> list[oracle.Delivery]:
    return [delivery for delivery in rig.deliveries() if delivery.change["op"] == "refresh"]


def lanes(rig: Rig) -> set[str]:
    return {request.headers["penstock-lane"] for request in rig.receiver.requests if request.is_taken}


def test_a_snapshot_beside_a_writer_gives_every_row_once(rig: Rig) -> None:
    keeper = Keeper(rig.shop, seed=8)
    rig.receiver.turn(slow=0.01)
    program = rig.start()
    program.until_event("Led")
    keeper.start()
    until(lambda: rig.position, what=program.tail)
    keeper.stop()
    rig.until_settled()
    assert program.terminate() == 0
    came = [(one.change["table"], oracle.canonical(one.change["key"])) for one in refreshes(rig)]
    assert len(came) == len(set(came))
    assert {table for table, _ in came} == set(KEYS)
    assert lanes(rig) == {"log", *(f"snapshot:{i}" for i in range(len(KEYS)))}
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []


def test_a_snapshot_that_is_killed_goes_on_where_it_was(rig: Rig) -> None:
    keeper = Keeper(rig.shop, seed=9)
    rig.receiver.turn(slow=0.3)
    program = rig.start()
    until(
        lambda: [mark for lane, mark in rig.standing().watermarks.items() if lane != "log" and mark.position >= 0],
        what=program.tail,
    )
    program.kill_tree()
    assert rig.position == 0
    done = {lane for lane, mark in rig.standing().watermarks.items() if mark.position >= 0} - {"log"}
    before = len(rig.receiver.requests)
    for _ in range(60):
        keeper.act()
    rig.receiver.turn(slow=0)
    program = rig.start()
    rig.until_settled()
    assert program.terminate() == 0
    assert not done & {request.headers["penstock-lane"] for request in rig.receiver.requests[before:]}
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []


def test_a_batch_begins_with_the_rows_and_ends_behind_the_head(rig: Rig) -> None:
    program = rig.start("--available-now")
    assert program.exit_code() == 0
    assert rig.position == rig.shop.head
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []
    assert lanes(rig) == {f"snapshot:{i}" for i in range(len(KEYS))}


def test_a_row_that_the_transform_raises_on_is_named_though_it_is_read_anew_each_time(rig: Rig) -> None:
    with rig.shop.transaction() as work:
        work.put("orders", id=777, customer=1, total=-1.0, note=None)
    rig.write(transform={"where": "table <> 'orders' or 1 / (after:total::double + 1) is not null"}, start="snapshot")
    program = rig.start()
    while program.is_running():
        rig.shop.sell()
        with suppress(TimeoutExpired):
            program.process.wait(0.02)
    assert program.exit_code() == 1
    [halted] = program.events("Halted")
    assert halted["code"] == "transform.invalid"
    assert 'of orders, key {"id":777}' in halted["message"]
    assert not [one for one in rig.deliveries() if one.change["key"] == {"id": 777}]
