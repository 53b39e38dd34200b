"""The contract of every sink: order, the durable position, repeats, closing."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

import pyarrow as pa

from penstock.change import Change, Lane, Op, last_place, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.sink import Assignment, Delivery, Sink, TransactionalDelivery
from penstock.testing.contract.suite import Contract

KEYS = 10
"""Change n has the key n modulo this."""


class SinkRig:
    """A sink with an empty destination."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.attempt = sink, 0

    def arrived(self) -> Sequence[tuple[int, object]] | None:
        """Position and content of each change that arrived, in this order; None where the destination keeps nothing."""
        raise NotImplementedError

    def assignment(self) -> Assignment:
        """The assignment of the next attempt."""
        self.attempt += 1
        return Assignment("orders", Lane("main"), 1, self.attempt, "cafe", None, lambda event: None)

    def changes(self, positions: Iterable[int]) -> list[Change]:
        """The changes with these positions."""
        return [_change(position) for position in positions]

    def open(self, assignment: Assignment | None = None, sink: Sink | None = None) -> Delivery:
        """Start delivering."""
        opened = (sink or self.sink).open(assignment or self.assignment())
        return Marked(cast(TransactionalDelivery, opened)) if self.sink.keeps_watermark else opened

    def offer(self, delivery: Delivery, positions: Iterable[int], patience: float) -> None:
        """Offer the changes with these positions."""
        assert delivery.offer(to_batch(self.changes(positions)), patience), f"no room for an offer within {patience} s"

    def positions(self) -> list[int] | None:
        """The positions that arrived, in this order."""
        arrived = self.arrived()
        return None if arrived is None else [position for position, _ in arrived]


def _change(position: int) -> Change:
    key = f'"id":{position % KEYS}'
    return Change(position, Op.UPDATE, "t", f"{{{key}}}", f'{{{key},"a":1}}', f'{{{key},"a":2}}', at=position * 1000)


class Marked:
    """A delivery of a sink that keeps the watermark, with a mark after every offer, as a source gives it."""

    def __init__(self, inner: TransactionalDelivery) -> None:
        self.inner, self.delivered, self.drain, self.close = inner, inner.delivered, inner.drain, inner.close

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Offer the changes, then the mark."""
        is_taken = self.inner.offer(changes, wait)
        if is_taken and changes.num_rows:
            position = last_place(changes)[0]
            self.inner.mark(Watermark(Cursor(f'{{"at":{position}}}'), position, position))
        return is_taken


class SinkContract(Contract):
    """Every sink."""

    def assert_arrived(self, rig: SinkRig, positions: Iterable[int]) -> None:
        """First deliveries of all of these and no others, in order per key; repeats have the same content."""
        if (arrived := rig.arrived()) is None:
            return
        firsts, wanted = list(dict.fromkeys(position for position, _ in arrived)), list(positions)
        assert sorted(firsts) == sorted(wanted), "not all changes arrived, or others did"
        for key in range(KEYS):
            of_key = [position for position in firsts if position % KEYS == key]
            assert of_key == sorted(of_key), f"first deliveries of key {key} are out of order"
        assert len(dict.fromkeys(map(repr, arrived))) == len(firsts), "a repeat has another content"

    def delivered(self, rig: SinkRig, *offers: Iterable[int], sink: Sink | None = None) -> Change | None:
        """Offer the changes with these positions to a new delivery, and drain it; returns the last change that is durable then."""
        with closing(rig.open(sink=sink)) as delivery:
            for positions in offers:
                rig.offer(delivery, positions, self.patience)
            assert delivery.drain(self.patience)
            return delivery.delivered()

    def test_settings_can_be_pickled_and_still_deliver(self, rig: SinkRig) -> None:
        """A pickled copy of a sink is equal to the sink, and delivers."""
        sink = pickle.loads(pickle.dumps(rig.sink))
        assert sink == rig.sink
        assert self.delivered(rig, [1], sink=sink)

    def test_nothing_is_delivered_before_anything_was_offered(self, rig: SinkRig) -> None:
        """A delivery without offers is drained, and `delivered` is None."""
        with closing(rig.open()) as delivery:
            assert delivery.delivered() is None
            assert delivery.drain(self.patience)

    def test_after_draining_the_last_change_offered_is_delivered_and_comes_back_whole(self, rig: SinkRig) -> None:
        """After `drain`, `delivered` is the last change that was offered, with all its fields."""
        assert self.delivered(rig, range(1, 6)) == rig.changes([5])[0]

    def test_first_deliveries_happen_in_the_order_offered_per_key_and_all_arrive(self, rig: SinkRig) -> None:
        """First deliveries of a key happen in the order in which its changes were offered, and every change arrives."""
        self.delivered(rig, *(range(start, start + 33) for start in range(1, 100, 33)))
        self.assert_arrived(rig, range(1, 100))

    def test_delivered_moves_forward_only_and_never_ahead_of_the_destination(self, rig: SinkRig) -> None:
        """`delivered` moves forward only, over changes that are durable at the destination, without a gap."""
        seen = [0]
        with closing(rig.open()) as delivery:
            for position in range(1, 60):
                rig.offer(delivery, [position], self.patience)
                seen.append(position_of(delivery))
                if seen[-1] != seen[-2] and (arrived := rig.positions()) is not None:
                    assert set(range(1, seen[-1] + 1)) <= set(arrived), f"delivered is {seen[-1]}"
            assert delivery.drain(self.patience)
        assert seen == sorted(seen)

    def test_an_empty_offer_is_taken_and_changes_nothing(self, rig: SinkRig) -> None:
        """An offer without changes is accepted, and does not move `delivered`."""
        assert self.delivered(rig, []) is None
        assert self.delivered(rig, [], [1], []) == rig.changes([1])[0]

    def test_one_offer_may_be_larger_than_any_buffer(self, rig: SinkRig) -> None:
        """One offer may have any number of changes."""
        assert self.delivered(rig, range(1, 2001)) == rig.changes([2000])[0]

    def test_batches_may_have_columns_after_those_of_changes(self, rig: SinkRig) -> None:
        """Columns of a batch after those of changes are ignored."""
        batch = to_batch(rig.changes([1, 2]))
        with closing(rig.open()) as delivery:
            assert delivery.offer(batch.append_column("more", batch.column(0)), self.patience)
            assert delivery.drain(self.patience)
            assert position_of(delivery) == 2

    def test_changes_that_are_offered_again_arrive_with_the_same_content(self, rig: SinkRig) -> None:
        """After a crash before the watermark was recorded, changes are repeated with the same content, and the next ones follow."""
        self.delivered(rig, range(1, 21))
        with closing(rig.open()) as successor:
            rig.offer(successor, range(_kept(successor) + 1, 31), self.patience)
            assert successor.drain(self.patience)
        self.assert_arrived(rig, range(1, 31))

    def test_after_closing_nothing_more_arrives_and_delivered_still_answers(self, rig: SinkRig) -> None:
        """Nothing arrives after `close` has returned; `delivered` still returns its change, and a successor continues after it."""
        delivery = rig.open()
        rig.offer(delivery, range(1, 40), self.patience)
        delivery.close()
        end = position_of(delivery)
        if (arrived := rig.positions()) is None:
            return
        assert set(arrived) >= set(range(1, end + 1)), f"delivered is {end}"
        assert len(set(arrived)) < 39 or end == 39, "every change arrived, but delivered is before the last"
        with closing(rig.open(replace(rig.assignment(), previous=end or None))) as successor:
            rig.offer(successor, range(end + 1, 41), self.patience)
            assert successor.drain(self.patience)
        for key in range(KEYS):
            before, now = ([one for one in some if one % KEYS == key] for some in (arrived, rig.positions() or []))
            assert now[: len(before)] == before, f"more of key {key} arrived after close"
        self.assert_arrived(rig, range(1, 41))

    def test_closing_twice_is_closing_once(self, rig: SinkRig) -> None:
        """`close` can be repeated."""
        delivery = rig.open()
        delivery.close()
        delivery.close()


def position_of(delivery: Delivery) -> int:
    """The position of the last durable change; 0 before there is one."""
    change = delivery.delivered()
    return change.position if change else 0


def _kept(delivery: Delivery) -> int:
    """The position up to which the destination has the watermark; 0 where it keeps none."""
    kept = delivery.inner.kept if isinstance(delivery, Marked) else None
    return kept.position if kept else 0
