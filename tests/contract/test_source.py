"""What every source must keep true. A new one adds a rig to source_rigs.py and no tests here."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_rigs import OWN, RIGS, SEVERAL, Rig, SharedRig

from deadline import PATIENCE
from examples import examples
from penstock.change import CHANGES, Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid, CursorInvalid, PenstockError, SourceOwned, SourceRewound
from penstock.following import beating, follow
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Following, Source, Span, Window, since


@pytest.fixture(params=RIGS | OWN | SEVERAL)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Any source."""
    made = (RIGS | OWN | SEVERAL)[request.param](request)
    yield made
    made.close()


@pytest.fixture(params=RIGS)
def shared(request: pytest.FixtureRequest) -> Iterator[SharedRig]:
    """A source with a log that several pipelines may read."""
    made = RIGS[request.param](request)
    yield made
    made.close()


@pytest.fixture(params=SEVERAL)
def several(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A source with lanes that appear and end."""
    made = SEVERAL[request.param](request)
    yield made
    made.close()


def beginning(source: Source) -> Cursor:
    return source.begin(source.lanes()[0], "beginning")


def whole(source: Source, after: Cursor | None = None) -> Span:
    lane = source.lanes()[0]
    return Span(lane, beginning(source) if after is None else after, source.head(lane))


def read(source: Source, *spans: Span) -> list[Change]:
    return [change for span in spans for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]


def followed(source: Source, after: Cursor, changes: int) -> list[Change]:
    """The changes after a cursor, until so many have come in whole windows."""
    found: list[Change] = []
    end = time.monotonic() + PATIENCE
    for window in follow(source, source.lanes()[0], after, ANONYMOUS):
        found += from_batch(window.changes)
        if window.upto and len(found) >= changes:
            return found
        assert time.monotonic() < end, "nothing came"
    raise AssertionError("it ended")


def test_reading_a_span_twice_gives_the_same_changes(rig: Rig) -> None:
    rig.commit(3)
    rig.commit(1)
    span = whole(rig.source)
    first = read(rig.source, span)
    rig.commit(2)
    assert len(first) == 4
    assert read(rig.source, span) == first


def test_batches_have_the_shape_of_changes(rig: Rig) -> None:
    rig.commit(2)
    assert all(batch.schema == CHANGES for batch in rig.source.read(whole(rig.source), ANONYMOUS))
    assert next(follow(rig.source, rig.source.lanes()[0], beginning(rig.source), ANONYMOUS)).changes.schema == CHANGES


@pytest.mark.parametrize("part", ["snapshot", "retention", "seek", "row_lease"])
def test_an_optional_part_is_whole_or_none(rig: Rig, part: str) -> None:
    declared = get_type_hints(getattr(Source, part).fget)["return"]
    protocol = next(one for one in get_args(declared) if one is not type(None))
    found = getattr(rig.source, part)
    missing = {name for name in vars(protocol) if not name.startswith("_")} - set(dir(found))
    assert found is None or not missing


def test_a_moment_is_a_place_only_in_a_source_that_keeps_what_was_delivered(rig: Rig) -> None:
    rig.commit(1)
    source, moment = rig.source, datetime.now(UTC) - timedelta(days=1)
    if source.seek:
        assert len(read(source, whole(source, since(source, source.lanes()[0], moment)))) == 1
    else:
        with pytest.raises(ConfigInvalid, match=r"no moment|keeps nothing"):
            since(source, source.lanes()[0], moment)


def test_positions_grow(rig: Rig) -> None:
    for changes in (1, 3, 2):
        rig.commit(changes)
    positions = [change.position for change in read(rig.source, whole(rig.source))]
    assert positions == sorted(set(positions))
    assert len(positions) == 6


def test_the_head_never_goes_back_and_nothing_lies_behind_it(rig: Rig) -> None:
    source, heads = rig.source, []
    for _ in range(4):
        heads.append(source.position(source.head(source.lanes()[0])))
        rig.commit(2)
    assert heads == sorted(set(heads))
    assert read(source, whole(source, source.head(source.lanes()[0]))) == []


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_spans_of_a_split_are_disjoint_in_order_and_complete(rig: Rig, data: st.DataObject) -> None:
    rig.commit(data.draw(st.integers(1, 7)))
    source, parts = rig.source, data.draw(st.integers(1, 9))
    span = whole(source)
    spans = source.split(span, parts)
    assert 1 <= len(spans) <= parts
    assert [spans[0].after, spans[-1].upto] == [span.after, span.upto]
    assert [one.upto for one in spans[:-1]] == [one.after for one in spans[1:]]
    assert read(source, *spans) == read(source, span)


def test_an_empty_stretch_has_nothing_to_read(rig: Rig) -> None:
    rig.commit(1)
    source = rig.source
    span = whole(source, source.head(source.lanes()[0]))
    assert read(source, span, *source.split(span, 3)) == []


def test_following_gives_what_reading_gives(rig: Rig) -> None:
    rig.commit(3)
    rig.commit(2)
    assert followed(rig.source, beginning(rig.source), 5) == read(rig.source, whole(rig.source))


def test_following_gives_every_change_once_while_it_is_written(rig: Rig) -> None:
    source, start = rig.source, beginning(rig.source)
    found: list[Change] = []
    thread = threading.Thread(target=lambda: found.extend(followed(source, start, 60)))
    thread.start()
    for _ in range(30):
        rig.commit(2)
    thread.join(PATIENCE)
    assert found == read(source, whole(source, start))


def test_following_shows_a_sign_of_life_when_nothing_happens(rig: Rig) -> None:
    rig.commit(1)
    source = rig.source
    windows = follow(source, source.lanes()[0], source.head(source.lanes()[0]), ANONYMOUS)
    next(windows)
    for window in islice(windows, 15):
        assert (window.changes.num_rows, window.idle) == (0, True)
        assert window.upto
        assert source.position(window.upto) == source.position(source.head(source.lanes()[0]))


def test_a_poll_ends_when_its_wait_is_over(rig: Rig) -> None:
    rig.commit(1)
    lane = rig.source.lanes()[0]
    with closing(rig.source.open(lane, rig.source.head(lane), ANONYMOUS)) as following:
        began = time.monotonic()
        assert polled(following, 0.2) == []
        assert time.monotonic() - began >= 0.2


def test_a_commit_ends_a_poll_of_a_day(rig: Rig) -> None:
    lane, begin, is_open = rig.source.lanes()[0], beginning(rig.source), threading.Event()

    def first() -> list[Change]:
        with closing(rig.source.open(lane, begin, ANONYMOUS)) as following:
            assert polled(following, 0.0) == []
            is_open.set()
            return polled(following, 86_400.0)

    with ThreadPoolExecutor() as pool:
        found = pool.submit(first)
        assert is_open.wait(PATIENCE)
        rig.commit(2)
        assert len(found.result(PATIENCE)) == 2


def polled(following: Following, wait: float) -> list[Change]:
    window = following.poll(wait)
    return [*from_batch(window.changes)] if window else []


def test_no_cursor_lies_before_a_change_that_was_given(rig: Rig) -> None:
    rig.commit(1500)
    source, given, found = rig.source, 0, 0
    with closing(source.open(source.lanes()[0], beginning(source), ANONYMOUS)) as following:
        for window in beating(following, beginning(source)):
            found += window.changes.num_rows
            given = window.changes.column(0)[-1].as_py() if window.changes.num_rows else given
            assert window.upto is None or source.position(window.upto) >= given
            if window.upto and found == 1500:
                break


def test_a_whole_windows_cursor_goes_on_where_it_ended(rig: Rig) -> None:
    rig.commit(2)
    source = rig.source
    window: Window = next(follow(source, source.lanes()[0], beginning(source), ANONYMOUS))
    rig.commit(2)
    assert window.upto
    after = followed(source, window.upto, 2)
    assert [*from_batch(window.changes), *after] == read(source, whole(source))


def test_one_can_go_on_behind_any_change(rig: Rig) -> None:
    rig.commit(3)
    rig.commit(2)
    source, start = rig.source, beginning(rig.source)
    changes = read(source, whole(source))
    for number, change in enumerate(changes):
        cursor = source.cursor_after(change, start)
        assert source.position(cursor) == change.position
        assert source.incarnation(cursor) == source.incarnation(start)
        assert read(source, whole(source, cursor)) == changes[number + 1 :]


def test_one_can_begin_now_or_behind_a_position(shared: SharedRig) -> None:
    shared.commit(3)
    source, lane = shared.source, shared.source.lanes()[0]
    changes = read(source, whole(source))
    assert read(source, whole(source, source.begin(lane, "now"))) == []
    assert read(source, whole(source, source.begin(lane, str(changes[0].position)))) == changes[1:]
    with pytest.raises(PenstockError):
        source.begin(lane, "yesterday")
    with pytest.raises(PenstockError):
        source.begin(lane, "999999")


def test_the_backlog_counts_what_waits(shared: SharedRig) -> None:
    source, lane, start = shared.source, shared.source.lanes()[0], beginning(shared.source)
    assert (source.backlog(lane, start).changes, source.backlog(lane, start).oldest_at) == (0, None)
    shared.commit(3)
    found = source.backlog(lane, start)
    assert (found.head, found.changes) == (source.position(source.head(lane)), 3)
    assert found.oldest_at
    assert int(found.oldest_at.timestamp() * 1000) == read(source, whole(source))[0].at // 1000
    assert source.backlog(lane, source.head(lane)).changes == 0


def test_the_backlog_counts_what_lies_between_two_cursors_and_ends_at_a_bound(rig: Rig) -> None:
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


def test_sources_and_cursors_travel(rig: Rig) -> None:
    rig.commit(2)
    source: Source = pickle.loads(pickle.dumps(rig.source))
    assert source == rig.source
    span: Span = pickle.loads(pickle.dumps(whole(rig.source)))
    assert read(source, span) == read(rig.source, span)


@pytest.mark.parametrize(
    "text", ["", "7", "[]", "{}", '{"position": 1}', "not json", '{"incarnation": 1, "position": "1", "witness": 0}']
)
def test_what_is_no_cursor_is_refused(rig: Rig, text: str) -> None:
    with pytest.raises(CursorInvalid):
        rig.source.position(Cursor(text))


def test_a_replaced_source_is_noticed(shared: SharedRig) -> None:
    shared.commit(3)
    source, lane = shared.source, shared.source.lanes()[0]
    span, windows = whole(source), follow(source, lane, source.head(lane), ANONYMOUS)
    next(windows)
    shared.replace()
    for deed in (lambda: next(windows), lambda: read(source, span), lambda: source.retention.settle("p", lane, span.upto)):
        with pytest.raises(SourceRewound):
            deed()


def test_settling_is_idempotent_and_keeps_what_is_needed(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    start = beginning(source)
    slow, fast = (source.cursor_after(changes[number], start) for number in (0, 2))
    assert source.retention.registered("fast", lane) is None
    source.retention.settle("slow", lane, slow)
    for _ in range(3):
        shared.rest()
        source.retention.settle("fast", lane, fast)
    assert source.retention.registered("fast", lane) == source.position(fast)
    assert source.retention.registered("slow", lane) == source.position(slow)
    assert read(source, whole(source, slow)) == changes[1:]
    shared.rest()
    assert source.retention.settle("fast", lane, fast).pruned == 0


def test_a_reader_is_registered_at_once_also_backwards_until_it_is_forgotten(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    start = beginning(source)
    late, early = (source.cursor_after(changes[number], start) for number in (3, 1))
    source.retention.register("p", lane, late)
    source.retention.register("p", lane, early)
    assert source.retention.registered("p", lane) == source.position(early)
    shared.rest()
    source.retention.settle("other", lane, source.head(lane))
    assert read(source, whole(source, early)) == changes[2:]
    assert [(one.pipeline, one.is_gone, one.is_released) for one in source.retention.readers() if one.pipeline == "p"] == [
        ("p", False, False)
    ]
    assert source.retention.forget("p")
    assert not source.retention.forget("p")
    assert source.retention.registered("p", lane) is None


def test_one_can_begin_before_the_first_change_of_a_time(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(2)
    before = datetime.now(UTC) - timedelta(days=1)
    assert len(read(source, whole(source, source.seek.since(lane, before)))) == 2
    assert read(source, whole(source, source.seek.since(lane, datetime.now(UTC) + timedelta(days=1)))) == []
    first, second = read(source, whole(source))
    assert second in read(source, whole(source, source.seek.since(lane, datetime.fromtimestamp(second.at / 1e6, UTC))))
    assert first.at <= second.at


A, B = Owner("a" * 16, "a.db", "here:1"), Owner("b" * 16, "b.db", "here:2")


def test_a_registration_belongs_to_one_state_and_that_of_another_changes_nothing(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    slow = source.cursor_after(changes[0], beginning(source))
    source.retention.register("p", lane, slow, A)
    for deed in (source.retention.register, source.retention.settle):
        for owner in (B, None):
            shared.rest()
            with pytest.raises(SourceOwned) as refused:
                deed("p", lane, source.head(lane), owner)
            assert all(said in refused.value.message for said in ("p registered", "a.db", "here:1", "last contact"))
            assert "penstock forget FILE" in refused.value.remedy
    assert source.retention.registered("p", lane) == source.position(slow)
    assert [one.owner for one in source.retention.readers()] == [A]
    shared.rest()
    source.retention.settle("other", lane, source.head(lane))
    assert read(source, whole(source, slow)) == changes[1:]
    shared.rest()
    source.retention.settle("p", lane, source.head(lane), A)
    assert source.retention.registered("p", lane) == source.position(source.head(lane))


@pytest.mark.parametrize("name", ["register", "settle"])
def test_a_registration_without_an_owner_is_adopted_by_the_first_state_that_comes(shared: SharedRig, name: str) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(2)
    head = source.head(lane)
    source.retention.register("p", lane, head)
    getattr(source.retention, name)("p", lane, head, A)
    with pytest.raises(SourceOwned):
        getattr(source.retention, name)("p", lane, head, B)
    source.retention.settle("p", lane, head, A)


def test_a_state_that_forgets_the_registration_of_another_takes_it_over_where_it_stands(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    slow = source.cursor_after(changes[1], beginning(source))
    source.retention.register("p", lane, slow, A)
    assert source.retention.forget("p", B)
    assert (source.retention.registered("p", lane), [one.owner for one in source.retention.readers()]) == (
        source.position(slow),
        [B],
    )
    shared.rest()
    source.retention.settle("other", lane, source.head(lane))
    assert read(source, whole(source, slow)) == changes[2:]
    for deed in (source.retention.register, source.retention.settle):
        with pytest.raises(SourceOwned):
            deed("p", lane, source.head(lane), A)
    source.retention.register("p", lane, source.head(lane), B)
    assert source.retention.forget("p", B)
    assert source.retention.registered("p", lane) is None
    source.retention.settle("p", lane, source.head(lane), A)


def test_what_everybody_has_delivered_goes(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(6)
    source.retention.settle("one", lane, source.head(lane))
    shared.rest()
    source.retention.settle("one", lane, source.head(lane))
    assert len(read(source, whole(source))) < 6
    shared.commit(1)
    assert len(followed(source, source.begin(lane, "beginning"), 1)) >= 1


def test_a_lane_that_has_ended_has_nothing_after_its_end(rig: Rig) -> None:
    for _ in range(3):
        rig.commit(2)
    source = rig.source
    for lane in source.lanes():
        if (end := source.end(lane)) is not None:
            assert source.head(lane) == end
            with closing(source.open(lane, end, ANONYMOUS)) as following:
                assert polled(following, 0.05) == []


def test_lanes_appear_and_end_and_each_is_whole(several: Rig) -> None:
    source = several.source
    first = set(source.lanes())
    for _ in range(4):
        several.commit(2)
    appeared = set(source.lanes()) - first
    ended = {lane for lane in source.lanes() if source.end(lane) is not None}
    assert appeared
    assert ended < set(source.lanes())
    for lane in source.lanes():
        span = Span(lane, source.begin(lane, "beginning"), source.head(lane))
        found = read(source, span)
        assert len(found) == source.backlog(lane, span.after).changes > 0
        assert read(source, *source.split(span, 2)) == found
        with closing(source.open(lane, span.after, ANONYMOUS)) as following:
            assert polled(following, 86_400.0) == found
    several.commit(1)
    assert ended <= {lane for lane in source.lanes() if source.end(lane) is not None}, "the end of a lane is for good"
