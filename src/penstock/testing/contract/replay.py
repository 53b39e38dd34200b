"""Sources that keep changes after delivery: going back, moments, and the registrations of several pipelines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import PenstockError, SourceOwned, SourceRewound
from penstock.following import follow
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Source
from penstock.testing.contract.reading import beginning, followed, read, whole
from penstock.testing.contract.source import SourceContract, SourceRig, part_of

A, B = Owner("a" * 16, "a.db", "here:1"), Owner("b" * 16, "b.db", "here:2")


class ReplayableRig(SourceRig, Protocol):
    """A source that keeps the changes that were delivered."""

    def replace(self) -> None:
        """Put another incarnation in its place, with as many changes."""


class SharedRig(ReplayableRig, Protocol):
    """A source that several pipelines read."""

    def rest(self) -> None:
        """Make the next `settle` write: some sources write only some time after the last commit."""


class ReplayableSourceContract(SourceContract):
    """Every source that keeps changes after delivery, so that a pipeline can go back."""

    def test_a_pipeline_begins_now_or_after_a_position(self, rig: ReplayableRig) -> None:
        """`begin` accepts `now` and the positions of changes, and raises an error for any other position or text."""
        rig.commit(3)
        source, lane = rig.source, rig.source.lanes()[0]
        changes = read(source, whole(source))
        assert read(source, whole(source, source.begin(lane, "now"))) == []
        assert read(source, whole(source, source.begin(lane, str(changes[0].position)))) == changes[1:]
        for nowhere in ("yesterday", "999999"):
            with pytest.raises(PenstockError):
                source.begin(lane, nowhere)

    def test_the_backlog_counts_what_waits(self, rig: ReplayableRig) -> None:
        """`backlog` has the number of changes up to the head, the position of the head, and the time of the oldest change."""
        source, lane, start = rig.source, rig.source.lanes()[0], beginning(rig.source)
        assert (source.backlog(lane, start).changes, source.backlog(lane, start).oldest_at) == (0, None)
        rig.commit(3)
        found = source.backlog(lane, start)
        assert (found.head, found.changes) == (source.position(source.head(lane)), 3)
        assert found.oldest_at
        assert int(found.oldest_at.timestamp() * 1000) == read(source, whole(source))[0].at // 1000
        assert source.backlog(lane, source.head(lane)).changes == 0

    def test_a_replaced_source_is_noticed(self, rig: ReplayableRig) -> None:
        """Reading and following raise SourceRewound at a cursor of another incarnation; they never skip changes."""
        rig.commit(3)
        source, lane = rig.source, rig.source.lanes()[0]
        span, windows = whole(source), follow(source, lane, source.head(lane), ANONYMOUS)
        next(windows)
        rig.replace()
        with pytest.raises(SourceRewound):
            next(windows)
        with pytest.raises(SourceRewound):
            read(source, span)


class SeekContract(ReplayableSourceContract):
    """The optional part `seek`."""

    tested_parts = frozenset({"seek"})

    def test_a_pipeline_begins_before_the_first_change_of_a_moment(self, rig: ReplayableRig) -> None:
        """`since` is the cursor before the first change that was made at a moment or later."""
        source, lane, seek = rig.source, rig.source.lanes()[0], part_of(rig, "seek")
        rig.commit(2)
        before, after = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
        assert len(read(source, whole(source, seek.since(lane, before)))) == 2
        assert read(source, whole(source, seek.since(lane, after))) == []
        first, second = read(source, whole(source))
        assert second in read(source, whole(source, seek.since(lane, datetime.fromtimestamp(second.at / 1e6, UTC))))
        assert first.at <= second.at

    def test_a_renewed_source_has_another_incarnation(self, rig: ReplayableRig) -> None:
        """`renew` begins a new incarnation."""
        rig.commit(1)
        before = rig.source.incarnation(beginning(rig.source))
        part_of(rig, "seek").renew()
        rig.commit(1)
        assert rig.source.incarnation(beginning(rig.source)) != before


class SharedSourceContract(ReplayableSourceContract):
    """The optional part `retention`, of a source that several pipelines read."""

    tested_parts = frozenset({"retention"})

    def test_settling_in_a_replaced_source_is_refused(self, rig: SharedRig) -> None:
        """`settle` raises SourceRewound at a cursor of another incarnation."""
        rig.commit(3)
        head = rig.source.head(rig.source.lanes()[0])
        rig.replace()
        with pytest.raises(SourceRewound):
            part_of(rig, "retention").settle("p", rig.source.lanes()[0], head)

    def test_settling_is_idempotent_and_keeps_what_is_needed(self, rig: SharedRig) -> None:
        """`settle` can be repeated, and keeps every change that a registered pipeline still needs."""
        source, lane, retention, changes, (slow, _, fast, _) = _four(rig)
        assert retention.registered("fast", lane) is None
        retention.settle("slow", lane, slow)
        for _ in range(3):
            rig.rest()
            retention.settle("fast", lane, fast)
        assert retention.registered("fast", lane) == source.position(fast)
        assert retention.registered("slow", lane) == source.position(slow)
        assert read(source, whole(source, slow)) == changes[1:]
        rig.rest()
        assert retention.settle("fast", lane, fast).pruned == 0

    def test_a_reader_is_registered_at_once_also_backwards_until_it_is_forgotten(self, rig: SharedRig) -> None:
        """`register` records a position at once, also an earlier one; `forget` removes the registration."""
        source, lane, retention, changes, (_, early, _, late) = _four(rig)
        retention.register("p", lane, late)
        retention.register("p", lane, early)
        assert retention.registered("p", lane) == source.position(early)
        rig.rest()
        retention.settle("other", lane, source.head(lane))
        assert read(source, whole(source, early)) == changes[2:]
        found = [(one.pipeline, one.is_gone, one.is_released) for one in retention.readers() if one.pipeline == "p"]
        assert found == [("p", False, False)]
        assert retention.forget("p")
        assert not retention.forget("p")
        assert retention.registered("p", lane) is None

    def test_a_registration_belongs_to_one_state_and_that_of_another_changes_nothing(self, rig: SharedRig) -> None:
        """`register` and `settle` of another owner raise SourceOwned and change nothing."""
        source, lane, retention, changes, (slow, *_) = _four(rig)
        retention.register("p", lane, slow, A)
        for call in (retention.register, retention.settle):
            for owner in (B, None):
                rig.rest()
                with pytest.raises(SourceOwned) as refused:
                    call("p", lane, source.head(lane), owner)
                assert all(said in refused.value.message for said in ("p registered", "a.db", "here:1", "last contact"))
                assert "penstock forget FILE" in refused.value.remedy
        assert retention.registered("p", lane) == source.position(slow)
        assert [one.owner for one in retention.readers()] == [A]
        rig.rest()
        retention.settle("other", lane, source.head(lane))
        assert read(source, whole(source, slow)) == changes[1:]
        rig.rest()
        retention.settle("p", lane, source.head(lane), A)
        assert retention.registered("p", lane) == source.position(source.head(lane))

    @pytest.mark.parametrize("name", ["register", "settle"])
    def test_a_registration_without_an_owner_is_adopted_by_the_first_state_that_comes(self, rig: SharedRig, name: str) -> None:
        """A registration without an owner belongs to the next owner that registers or settles."""
        lane, retention = rig.source.lanes()[0], part_of(rig, "retention")
        rig.commit(2)
        head = rig.source.head(lane)
        retention.register("p", lane, head)
        getattr(retention, name)("p", lane, head, A)
        with pytest.raises(SourceOwned):
            getattr(retention, name)("p", lane, head, B)
        retention.settle("p", lane, head, A)

    def test_a_state_that_forgets_the_registration_of_another_takes_it_over_where_it_stands(self, rig: SharedRig) -> None:
        """`forget` of another owner hands the registration over to that owner, at the same position."""
        source, lane, retention, changes, (_, slow, *_) = _four(rig)
        retention.register("p", lane, slow, A)
        assert retention.forget("p", B)
        assert retention.registered("p", lane) == source.position(slow)
        assert [one.owner for one in retention.readers()] == [B]
        rig.rest()
        retention.settle("other", lane, source.head(lane))
        assert read(source, whole(source, slow)) == changes[2:]
        for call in (retention.register, retention.settle):
            with pytest.raises(SourceOwned):
                call("p", lane, source.head(lane), A)
        retention.register("p", lane, source.head(lane), B)
        assert retention.forget("p", B)
        assert retention.registered("p", lane) is None
        retention.settle("p", lane, source.head(lane), A)

    def test_changes_that_all_readers_have_delivered_are_pruned(self, rig: SharedRig) -> None:
        """`settle` prunes changes that no registered pipeline needs, and later changes are read as before."""
        source, lane, retention = rig.source, rig.source.lanes()[0], part_of(rig, "retention")
        rig.commit(6)
        retention.settle("one", lane, source.head(lane))
        rig.rest()
        retention.settle("one", lane, source.head(lane))
        assert len(read(source, whole(source))) < 6
        rig.commit(1)
        assert len(followed(source, source.begin(lane, "beginning"), 1, self.patience)) >= 1


def _four(rig: SharedRig) -> tuple[Source, Lane, Any, list[Change], list[Cursor]]:
    """The source, its first lane and its retention, four committed changes, and the cursor after each of them."""
    rig.commit(4)
    source, changes = rig.source, read(rig.source, whole(rig.source))
    cursors = [source.cursor_after(change, beginning(source)) for change in changes]
    return source, source.lanes()[0], part_of(rig, "retention"), changes, cursors
