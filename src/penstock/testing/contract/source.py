"""The core that every source implements."""

from __future__ import annotations

import pickle
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, ClassVar, Protocol, get_args, get_type_hints

import pytest

from penstock.change import CHANGES, MESSAGES, Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid, CursorInvalid
from penstock.following import beating, follow
from penstock.source import ANONYMOUS, Source, since
from penstock.testing.contract.reading import DAY, beginning, followed, polled, polled_at, read, whole
from penstock.testing.contract.suite import Contract

PARTS = ("snapshot", "retention", "seek", "row_lease")
NO_CURSORS = ("", "7", "[]", "{}", '{"position": 1}', "not json", '{"incarnation": 1, "position": "1", "witness": 0}')


def part_of(rig: SourceRig, name: str) -> Any:
    """An optional part of the source."""
    part = getattr(rig.source, name)
    assert part, f"the source declares no {name}, which this suite tests"
    return part


class SourceRig(Protocol):
    """A new and empty source, and the application that writes to it. The tests read its first lane."""

    @property
    def source(self) -> Source:
        """The source."""

    def commit(self, changes: int) -> None:
        """Commit one transaction of so many changes to the first lane."""


class SourceContract(Contract):
    """Every source. `tested_parts`: the optional parts whose rules this class has; a subclass inherits one for each part."""

    tested_parts: ClassVar[frozenset[str]] = frozenset()

    def test_reading_a_span_twice_gives_the_same_changes(self, rig: SourceRig) -> None:
        """`read` gives the same changes for the same span every time, also after other changes were committed."""
        rig.commit(3)
        rig.commit(1)
        span = whole(rig.source)
        first = read(rig.source, span)
        rig.commit(2)
        assert len(first) == 4
        assert read(rig.source, span) == first

    def test_batches_have_the_shape_of_changes(self, rig: SourceRig) -> None:
        """Every batch has the columns of `penstock.change.CHANGES`, or of `MESSAGES`."""
        rig.commit(2)
        schema = MESSAGES if rig.source.gives_messages else CHANGES
        assert all(batch.schema == schema for batch in rig.source.read(whole(rig.source), ANONYMOUS))
        assert next(follow(rig.source, rig.source.lanes()[0], beginning(rig.source), ANONYMOUS)).changes.schema == schema

    @pytest.mark.parametrize("part", PARTS)
    def test_an_optional_part_is_whole_or_none(self, rig: SourceRig, part: str) -> None:
        """An optional part has every method of its protocol, or is None."""
        declared = get_type_hints(getattr(Source, part).fget)["return"]
        protocol = next(one for one in get_args(declared) if one is not type(None))
        found = getattr(rig.source, part)
        missing = {name for name in vars(protocol) if not name.startswith("_")} - set(dir(found))
        assert found is None or not missing

    def test_every_declared_part_is_tested(self, rig: SourceRig) -> None:
        """A source that declares an optional part passes the suite of that part."""
        declared = {part for part in PARTS if getattr(rig.source, part) is not None}
        tested = frozenset().union(*(vars(one).get("tested_parts", ()) for one in type(self).__mro__))
        assert declared <= tested, f"inherit the suites of {', '.join(sorted(declared - tested))}: see docs/testing.md"

    def test_a_moment_is_a_place_only_in_a_source_that_keeps_what_was_delivered(self, rig: SourceRig) -> None:
        """A pipeline can continue at a time in the past if the source declares `seek`; otherwise `since` raises ConfigInvalid."""
        rig.commit(1)
        source, moment = rig.source, datetime.now(UTC) - timedelta(days=1)
        if source.seek:
            assert len(read(source, whole(source, since(source, source.lanes()[0], moment)))) == 1
        else:
            with pytest.raises(ConfigInvalid):
                since(source, source.lanes()[0], moment)

    def test_positions_grow(self, rig: SourceRig) -> None:
        """Positions grow in commit order, and each position names one change."""
        for changes in (1, 3, 2):
            rig.commit(changes)
        positions = [change.position for change in read(rig.source, whole(rig.source))]
        assert positions == sorted(set(positions))
        assert len(positions) == 6

    def test_the_head_never_goes_back_and_nothing_lies_after_it(self, rig: SourceRig) -> None:
        """`head` is the cursor after the last committed change, and never goes back."""
        source, heads = rig.source, []
        for _ in range(4):
            heads.append(source.position(source.head(source.lanes()[0])))
            rig.commit(2)
        assert heads == sorted(set(heads))
        assert read(source, whole(source, source.head(source.lanes()[0]))) == []

    def test_the_spans_of_a_split_are_disjoint_in_order_and_complete(self, rig: SourceRig) -> None:
        """The spans of a split, at most as many as asked for, are disjoint, in order, and cover the whole span."""
        rolls = random.Random(7)
        for _ in range(8):
            rig.commit(rolls.randint(1, 7))
            parts = rolls.randint(1, 9)
            span = whole(rig.source)
            spans = rig.source.split(span, parts)
            assert 1 <= len(spans) <= parts
            assert [spans[0].after, spans[-1].upto] == [span.after, span.upto]
            assert [one.upto for one in spans[:-1]] == [one.after for one in spans[1:]]
            assert read(rig.source, *spans) == read(rig.source, span)

    def test_an_empty_span_has_nothing_to_read(self, rig: SourceRig) -> None:
        """An empty span has no changes, split or not."""
        rig.commit(1)
        source = rig.source
        span = whole(source, source.head(source.lanes()[0]))
        assert read(source, span, *source.split(span, 3)) == []

    def test_following_gives_what_reading_gives(self, rig: SourceRig) -> None:
        """Following a lane gives the changes that `read` gives."""
        rig.commit(3)
        rig.commit(2)
        assert followed(rig.source, beginning(rig.source), 5, self.patience) == read(rig.source, whole(rig.source))

    def test_following_gives_every_change_once_while_it_is_written(self, rig: SourceRig) -> None:
        """Following gives every change once and in order while an application commits."""
        source, start = rig.source, beginning(rig.source)
        with ThreadPoolExecutor() as pool:
            found = pool.submit(followed, source, start, 60, self.patience)
            for _ in range(30):
                rig.commit(2)
            assert found.result(2 * self.patience) == read(source, whole(source, start))

    def test_following_shows_a_sign_of_life_when_nothing_happens(self, rig: SourceRig) -> None:
        """Without changes, following gives empty windows at the head."""
        rig.commit(1)
        source = rig.source
        windows = follow(source, source.lanes()[0], source.head(source.lanes()[0]), ANONYMOUS)
        next(windows)
        for window in islice(windows, 15):
            assert (window.changes.num_rows, window.idle) == (0, True)
            assert window.upto
            assert source.position(window.upto) == source.position(source.head(source.lanes()[0]))

    def test_a_poll_ends_when_its_wait_is_over(self, rig: SourceRig) -> None:
        """A poll without changes waits at least for the given time."""
        rig.commit(1)
        lane = rig.source.lanes()[0]
        with closing(rig.source.open(lane, rig.source.head(lane), ANONYMOUS)) as following:
            began = time.monotonic()
            assert polled(following, 0.2) == []
            assert time.monotonic() - began >= 0.2

    def test_a_commit_ends_a_poll_of_a_day(self, rig: SourceRig) -> None:
        """A poll returns when changes are committed, also if it may wait for a day."""
        lane, begin, is_open = rig.source.lanes()[0], beginning(rig.source), threading.Event()

        def first() -> list[Change]:
            with closing(rig.source.open(lane, begin, ANONYMOUS)) as following:
                assert polled(following, 0.0) == []
                is_open.set()
                return polled(following, DAY)

        with ThreadPoolExecutor() as pool:
            found = pool.submit(first)
            assert is_open.wait(self.patience)
            rig.commit(2)
            assert len(found.result(self.patience)) == 2

    def test_no_cursor_lies_before_a_change_that_was_given(self, rig: SourceRig) -> None:
        """The cursor of a window is not before any change that was given so far."""
        rig.commit(1500)
        source, given, found = rig.source, 0, 0
        with closing(source.open(source.lanes()[0], beginning(source), ANONYMOUS)) as following:
            for window in beating(following, beginning(source)):
                found += window.changes.num_rows
                given = window.changes.column("position")[-1].as_py() if window.changes.num_rows else given
                assert window.upto is None or source.position(window.upto) >= given
                if window.upto and found == 1500:
                    break

    def test_the_cursor_of_a_whole_window_goes_on_where_it_ended(self, rig: SourceRig) -> None:
        """The changes after the cursor of a whole window are those that come after the window."""
        rig.commit(2)
        source = rig.source
        lane, start = source.lanes()[0], beginning(source)
        window = next(follow(source, lane, start, ANONYMOUS))
        rig.commit(2)
        assert window.upto
        after = followed(source, window.upto, 2, self.patience)
        assert [*from_batch(window.changes), *after] == read(source, whole(source))

    def test_reading_goes_on_after_any_change(self, rig: SourceRig) -> None:
        """The cursor of `cursor_after` has the position and the incarnation of its change, and the next change follows after it."""
        rig.commit(3)
        rig.commit(2)
        source, start = rig.source, beginning(rig.source)
        changes = read(source, whole(source))
        for number, change in enumerate(changes):
            cursor = source.cursor_after(change, start)
            assert source.position(cursor) == change.position
            assert source.incarnation(cursor) == source.incarnation(start)
            assert read(source, whole(source, cursor)) == changes[number + 1 :]

    def test_the_backlog_counts_what_lies_between_two_cursors_and_ends_at_a_bound(self, rig: SourceRig) -> None:
        """`backlog` counts the changes between two cursors, or up to the head, and at most as many as asked for."""
        rig.commit(4)
        rig.commit(3)
        source, lane = rig.source, rig.source.lanes()[0]
        span = whole(source)
        ends = [span.after, *(source.cursor_after(change, span.after) for change in read(source, span))]
        rig.commit(2)
        for first, after in enumerate(ends):
            for last, upto in enumerate(ends[first:], first):
                for most in (None, 1, 3, 100):
                    found = source.backlog(lane, after, upto, most)
                    assert found.changes == min(last - first, last if most is None else most)
                    assert found.head == source.position(upto)
        assert [source.backlog(lane, span.after, most=most).changes for most in (None, 1, 8, 100)] == [9, 1, 8, 9]

    def test_sources_and_cursors_travel(self, rig: SourceRig) -> None:
        """A pickled copy of a source is equal to the source, and reads the same changes."""
        rig.commit(2)
        source: Source = pickle.loads(pickle.dumps(rig.source))
        assert source == rig.source
        span = pickle.loads(pickle.dumps(whole(rig.source)))
        assert read(source, span) == read(rig.source, span)

    @pytest.mark.parametrize("text", NO_CURSORS)
    def test_text_that_is_no_cursor_is_refused(self, rig: SourceRig, text: str) -> None:
        """`position` raises CursorInvalid for text that is no cursor of this source."""
        with pytest.raises(CursorInvalid):
            rig.source.position(Cursor(text))

    def test_a_lane_that_has_ended_has_nothing_after_its_end(self, rig: SourceRig) -> None:
        """The end of a lane is its head, and no change follows after it."""
        for _ in range(3):
            rig.commit(2)
        source = rig.source
        for lane in source.lanes():
            if (end := source.end(lane)) is not None:
                assert source.head(lane) == end
                assert polled_at(source, lane, end, 0.05) == []
