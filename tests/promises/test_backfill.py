"""Rows that are there already come first, then the stream: killed in the middle, beside a writer, and as a batch."""

from __future__ import annotations

from typing import Any

from stories import Part, Story, Way, of

from deadline import until
from fix_rig import Rig
from penstock.config import load
from penstock.status import Status, observe
from penstock.testing import oracle
from shop import KEYS, Keeper

HELD = '"key":{"sku":"s5"}'
"""Of a row in the middle of the last lane."""
COMMITS = 30


class Filled(Part):
    """A pipeline that begins with the rows of a shop, which has some."""

    def filled(self, **how: Any) -> Rig:
        rig = self.rig(type(self).__name__.lower(), start="snapshot", batch={"size": 5}, **how)
        keeper = Keeper(rig.shop, seed=7)
        for _ in range(300):
            keeper.act()
        return rig


def refreshes(rig: Rig) -> list[oracle.Delivery]:
    return [delivery for delivery in rig.deliveries() if delivery.change["op"] == "refresh"]


def lanes(rig: Rig, since: int = 0) -> set[str]:
    return {request.headers["penstock-lane"] for request in rig.receiver.requests[since:] if request.is_taken}


class BesideAWriter(Filled):
    """A writer goes on all the time; the receiver refuses a row until more was committed after others have come."""

    def way(self) -> Way:
        yield []
        yield
        self.live = rig = self.filled()
        keeper = Keeper(rig.shop, seed=8, rest=0.1)
        rig.receiver.turn(poison=HELD)
        keeper.start()  # now: when the other parts let us go on, all ranges were read long ago
        program = yield [rig.file]
        until(lambda: lanes(rig), what=program.tail)
        more = keeper.commits + COMMITS
        until(lambda: keeper.commits >= more, what=lambda: f"{keeper.commits} commits")
        rig.receiver.turn(poison="")
        until(lambda: "log" in lanes(rig), what=program.tail)
        keeper.stop()
        rig.until_settled()
        yield


def test_a_snapshot_beside_a_writer_gives_every_row_once(interrupted: Story) -> None:
    beside = interrupted.of(BesideAWriter)
    [program], rig = beside.programs, beside.live
    assert program.process.returncode == 0
    came = [(one.change["table"], oracle.canonical(one.change["key"])) for one in refreshes(rig)]
    assert len(came) == len(set(came))
    assert {table for table, _ in came} == set(KEYS)
    assert lanes(rig) == {"log", *(f"snapshot:{i}" for i in range(len(KEYS)))}
    assert oracle.order(rig.deliveries()) == [], "the stream began with changes that the rows had already"
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []


class Killed(Filled):
    """The receiver refuses a row of one lane until the process was killed, which has other lanes behind it by then."""

    def way(self) -> Way:
        self.live = rig = self.filled()
        keeper = Keeper(rig.shop, seed=9)
        rig.receiver.turn(poison=HELD)
        program = yield [rig.file]
        until(lambda: len(self.finished()) == len(KEYS) - 1 and lanes(rig) - self.finished(), what=program.tail)
        until(lambda: self.seen().last_error, what=program.tail)
        self.refused = self.seen()
        yield
        self.died = self.seen()
        self.position, self.done, self.before = rig.position, self.finished(), len(rig.receiver.requests)
        for _ in range(60):
            keeper.act()
        rig.receiver.turn(poison="")
        yield [rig.file]
        rig.until_settled()
        yield

    def seen(self) -> Status:
        """As another process sees it."""
        return observe(load(self.live.file))

    def finished(self) -> set[str]:
        return {lane for lane, mark in self.live.pipeline_state().watermarks.items() if lane != "log" and mark.position >= 0}


def test_a_snapshot_that_is_killed_goes_on_where_it_was(interrupted: Story) -> None:
    killed = interrupted.of(Killed)
    rig, [_, program] = killed.live, killed.programs
    assert killed.position == 0
    assert len(killed.done) == len(KEYS) - 1
    assert not killed.done & lanes(rig, killed.before)
    assert lanes(rig, killed.before) - {"log"}
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []
    assert program.process.returncode == 0


def test_a_snapshot_whose_receiver_refuses_shows_it_also_when_its_leader_has_died(interrupted: Story) -> None:
    killed = interrupted.of(Killed)
    for seen in (killed.refused, killed.died):
        assert seen.last_error
        assert seen.last_error["code"] == "sink.failing"
        assert seen.backlog
        assert (seen.lag_seconds or 0) > 0
    assert killed.refused.state == "leading"
    assert (killed.died.lag_seconds or 0) > (killed.refused.lag_seconds or 0)


class AsBatch(Filled):
    """Rows and nothing else, to their end."""

    def way(self) -> Way:
        for _ in range(2):
            yield []
            yield
        self.batch = self.filled()
        yield [self.batch.file]
        yield


def test_a_batch_begins_with_the_rows_and_ends_behind_the_head(interrupted: Story) -> None:
    batch = interrupted.of(AsBatch)
    [program], rig = batch.programs, batch.batch
    assert program.process.returncode == 0
    assert rig.position == rig.shop.head
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []
    assert lanes(rig) == {f"snapshot:{i}" for i in range(len(KEYS))}


class RaisedOn(Filled):
    """The transform raises on a row, which is read anew each time while others are written."""

    def way(self) -> Way:
        self.live = rig = self.filled()
        with rig.shop.transaction() as work:
            work.put("orders", id=777, customer=1, total=-1.0, note=None)
        rig.write(transform={"where": "table <> 'orders' or 1 / (after:total::double + 1) is not null"}, start="snapshot")
        program = yield [rig.file]
        before = rig.shop.head
        until(lambda: of(program.events("Halted"), rig) or not rig.shop.sell(), what=program.tail)
        self.sold = rig.shop.head - before
        yield


def test_a_row_that_the_transform_raises_on_is_named_though_it_is_read_anew_each_time(halted: Story) -> None:
    raised = halted.of(RaisedOn)
    [program], rig = raised.programs, raised.live
    assert raised.sold > 0, "it had halted before others were written"
    assert program.process.returncode == 1
    [said] = of(program.events("Halted"), rig)
    assert said["code"] == "transform.invalid"
    assert 'of orders, key {"id":777}' in said["message"]
    assert not [one for one in rig.deliveries() if one.change["key"] == {"id": 777}]
