"""Sources with several lanes, with a snapshot, or whose rows are leased."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import closing
from typing import Protocol

import pytest

from penstock.change import Change, Op, from_batch
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.source import RowName, Span, Stamp
from penstock.testing.contract.reading import DAY, beginning, polled, polled_at, read, whole
from penstock.testing.contract.source import SourceContract, SourceRig, part_of

FIRST, SECOND = Stamp(1, 1), Stamp(1, 2)
"""Two attempts under one term: the second takes over."""


class LanesContract(SourceContract):
    """A source with several lanes. While its rig commits four times, at least one lane appears, and at least one ends."""

    def test_lanes_appear_while_a_pipeline_runs(self, rig: SourceRig) -> None:
        """`lanes` lists a lane that has appeared since the last call, and still lists the others."""
        source, first = rig.source, set(rig.source.lanes())
        _commit_four_times(rig)
        assert first < set(source.lanes())

    def test_the_end_of_a_lane_is_for_good(self, rig: SourceRig) -> None:
        """A lane that has ended is still listed, and its end never changes."""
        _commit_four_times(rig)
        ends = {lane: end for lane in rig.source.lanes() if (end := rig.source.end(lane)) is not None}
        assert ends.keys() < set(rig.source.lanes())
        assert ends
        rig.commit(1)
        assert {lane: rig.source.end(lane) for lane in ends} == ends

    def test_every_lane_is_complete(self, rig: SourceRig) -> None:
        """On every lane `read`, `split` and `open` give the same changes from `beginning` on, and `backlog` has their number."""
        _commit_four_times(rig)
        source = rig.source
        for lane in source.lanes():
            span = Span(lane, source.begin(lane, "beginning"), source.head(lane))
            found = read(source, span)
            assert len(found) == source.backlog(lane, span.after).changes
            assert found, f"lane {lane} has no changes"
            assert read(source, *source.split(span, 2)) == found
            assert polled_at(source, lane, span.after, DAY) == found


def _commit_four_times(rig: SourceRig) -> None:
    for _ in range(4):
        rig.commit(2)


class SnapshotRig(SourceRig, Protocol):
    """A source whose `commit` inserts as many rows as it makes changes."""

    def keys(self) -> Collection[str]:
        """The keys of all rows that exist now, as `Change.key` has them."""

    def remove(self) -> str:
        """Delete one row, and return its key."""


class SnapshotContract(SourceContract):
    """The optional part `snapshot`."""

    tested_parts = frozenset({"snapshot"})

    def test_the_ranges_hold_every_row_once(self, rig: SnapshotRig) -> None:
        """The ranges contain every existing row once, as `refresh`."""
        rig.commit(5)
        changes, _ = _delivered(rig, _planned(rig))
        assert {change.op for change in changes} == {Op.REFRESH}
        assert Counter(change.key for change in changes) == Counter(rig.keys())

    def test_only_the_last_window_of_a_range_is_whole(self, rig: SnapshotRig) -> None:
        """The last window of a range has a cursor, and its other windows have none."""
        rig.commit(5)
        for cursor in part_of(rig, "snapshot").ranges(_planned(rig)).values():
            *others, last = (window.upto for window in part_of(rig, "snapshot").rows(cursor, again=False))
            assert others == [None] * len(others)
            assert last

    def test_the_stream_leaves_out_what_the_ranges_include(self, rig: SnapshotRig) -> None:
        """Ranges and the stream after them have every row once, also rows that were inserted between the plan and the ranges."""
        rig.commit(3)
        planned = _planned(rig)
        rig.commit(2)
        changes, ends = _delivered(rig, planned)
        rig.commit(2)
        stream = read(rig.source, whole(rig.source, part_of(rig, "snapshot").joined(planned, ends)))
        assert Counter(change.key for change in [*changes, *stream]) == Counter(rig.keys())

    def test_no_ranges_are_left_after_they_were_joined(self, rig: SnapshotRig) -> None:
        """A cursor after a snapshot has no ranges, and neither has a cursor that does not begin with a snapshot."""
        rig.commit(3)
        planned = _planned(rig)
        _, ends = _delivered(rig, planned)
        assert not part_of(rig, "snapshot").ranges(part_of(rig, "snapshot").joined(planned, ends))
        assert not part_of(rig, "snapshot").ranges(beginning(rig.source))

    def test_the_remaining_rows_are_counted(self, rig: SnapshotRig) -> None:
        """`remaining` counts no more rows than there are, and 0 rows without ranges."""
        rig.commit(5)
        left = [*part_of(rig, "snapshot").ranges(_planned(rig)).values()]
        assert 0 <= (part_of(rig, "snapshot").remaining(left).changes or 0) <= 5
        assert part_of(rig, "snapshot").remaining([]).changes == 0

    def test_rows_that_were_removed_between_two_attempts_come_as_deleted(self, rig: SnapshotRig) -> None:
        """A range that is read again gives the rows that were removed since the first read as `delete`."""
        rig.commit(4)
        planned = _planned(rig)
        _delivered(rig, planned)
        removed = rig.remove()
        changes, _ = _delivered(rig, planned, again=True)
        assert {change.key for change in changes if change.op == Op.DELETE} == {removed}
        assert Counter(change.key for change in changes if change.op != Op.DELETE) == Counter(rig.keys())


def _planned(rig: SnapshotRig) -> Cursor:
    return rig.source.begin(rig.source.lanes()[0], "snapshot")


def _delivered(rig: SnapshotRig, planned: Cursor, *, again: bool = False) -> tuple[list[Change], list[Cursor]]:
    """The rows of all ranges, and the cursors at which the ranges end."""
    snapshot = part_of(rig, "snapshot")
    windows = [window for begin in snapshot.ranges(planned).values() for window in snapshot.rows(begin, again=again)]
    changes = [change for window in windows for change in from_batch(window.changes)]
    return changes, [window.upto for window in windows if window.upto]


class RowLeaseContract(SourceContract):
    """The optional part `row_lease`, and the retention of a source that one pipeline has for itself."""

    tested_parts = frozenset({"row_lease", "retention"})

    def test_rows_that_a_predecessor_has_leased_come_first(self, rig: SourceRig) -> None:
        """A successor first reads the rows that its predecessor leased and did not deliver, at the same positions."""
        rig.commit(3)
        first = _lease(rig, FIRST)
        rig.commit(2)
        second = _lease(rig, SECOND)
        assert len(first) == 3
        assert len(second) == 5
        assert second[:3] == first

    def test_purged_rows_do_not_come_again(self, rig: SourceRig) -> None:
        """A row that was purged is not read again."""
        rig.commit(3)
        first = _lease(rig, FIRST)
        with closing(part_of(rig, "row_lease").open(FIRST)) as lease:
            lease.purge(_rows(rig, first[:2]))
        assert _lease(rig, SECOND) == first[2:]

    def test_a_row_that_went_back_is_read_once_more(self, rig: SourceRig) -> None:
        """A row that was reset is leased, and read, once more."""
        rig.commit(3)
        source, lane = rig.source, rig.source.lanes()[0]
        with (
            closing(source.open(lane, beginning(source), FIRST)) as following,
            closing(part_of(rig, "row_lease").open(FIRST)) as lease,
        ):
            changes = polled(following, DAY)
            lease.reset(_rows(rig, changes[1:2]))
            assert _rows(rig, polled(following, DAY)) == _rows(rig, changes[1:2])

    def test_a_late_call_of_a_deposed_holder_has_no_effect(self, rig: SourceRig) -> None:
        """`purge`, `reset` and `confirm` of a deposed holder raise TermLost and change no row of its successor."""
        rig.commit(3)
        rows = _rows(rig, _lease(rig, FIRST))
        _lease(rig, SECOND)
        with closing(part_of(rig, "row_lease").open(FIRST)) as deposed:
            for call in (deposed.purge, deposed.reset, deposed.confirm):
                with pytest.raises(TermLost):
                    call(rows)
        with closing(part_of(rig, "row_lease").open(SECOND)) as lease:
            lease.confirm(rows)
        assert rig.source.backlog(rig.source.lanes()[0], beginning(rig.source)).changes == 3

    def test_a_deposed_reader_reads_nothing(self, rig: SourceRig) -> None:
        """`read` of a deposed reader raises TermLost after its successor has leased rows."""
        rig.commit(3)
        _lease(rig, SECOND)
        with pytest.raises(TermLost):
            _lease(rig, FIRST)

    def test_leased_rows_are_listed(self, rig: SourceRig) -> None:
        """`leased` gives the rows that are leased and not delivered, and no others."""
        rig.commit(3)
        first = _lease(rig, FIRST)
        rig.commit(2)
        lane, start = rig.source.lanes()[0], beginning(rig.source)
        assert [change for batch in part_of(rig, "row_lease").leased(lane, start) for change in from_batch(batch)] == first

    def test_settling_purges_delivered_rows(self, rig: SourceRig) -> None:
        """`retention.settle` purges the rows up to a cursor of their holder, and no others."""
        rig.commit(3)
        first = _lease(rig, FIRST)
        with closing(part_of(rig, "row_lease").open(FIRST)) as lease:
            upto = lease.cursor(rig.source.cursor_after(first[1], beginning(rig.source)))
        assert part_of(rig, "retention").settle("p", rig.source.lanes()[0], upto).pruned == 2
        assert _lease(rig, SECOND) == first[2:]


def _lease(rig: SourceRig, reader: Stamp) -> list[Change]:
    """Read all rows that exist, which leases them."""
    lane = rig.source.lanes()[0]
    return read(rig.source, Span(lane, beginning(rig.source), part_of(rig, "row_lease").target(lane)), reader=reader)


def _rows(rig: SourceRig, changes: Iterable[Change]) -> list[RowName]:
    """The rows of these changes, as the lease names them."""
    with closing(part_of(rig, "row_lease").open(FIRST)) as lease:
        return [lease.name(change) for change in changes]
