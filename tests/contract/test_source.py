"""What every source must keep true. A new one adds a rig to source_rigs.py and no tests here."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_rigs import OWN, RIGS, Rig, SharedRig

from deadline import PATIENCE
from examples import examples
from penstock.change import CHANGES, Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import CursorInvalid, PenstockError, SourceOwned, SourceRewound
from penstock.owner import Owner
from penstock.source import Source, Span, Window


@pytest.fixture(params=RIGS | OWN)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Any source."""
    made = (RIGS | OWN)[request.param](request)
    yield made
    made.close()


@pytest.fixture(params=RIGS)
def shared(request: pytest.FixtureRequest) -> Iterator[SharedRig]:
    """A source with a log that several pipelines may read."""
    made = RIGS[request.param](request)
    yield made
    made.close()


def beginning(source: Source) -> Cursor:
    return source.begin(source.lanes()[0], "beginning")


def whole(source: Source, after: Cursor | None = None) -> Span:
    lane = source.lanes()[0]
    return Span(lane, beginning(source) if after is None else after, source.head(lane))


def read(source: Source, *spans: Span) -> list[Change]:
    return [change for span in spans for batch in source.read(span) for change in from_batch(batch)]


def follow(source: Source, after: Cursor, changes: int) -> list[Change]:
    """The changes after a cursor, until so many have come in whole windows."""
    found: list[Change] = []
    end = time.monotonic() + PATIENCE
    for window in source.follow(source.lanes()[0], after):
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
    assert all(batch.schema == CHANGES for batch in rig.source.read(whole(rig.source)))
    assert next(rig.source.follow(rig.source.lanes()[0], beginning(rig.source))).changes.schema == CHANGES


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
    assert follow(rig.source, beginning(rig.source), 5) == read(rig.source, whole(rig.source))


def test_following_gives_every_change_once_while_it_is_written(rig: Rig) -> None:
    source, start = rig.source, beginning(rig.source)
    found: list[Change] = []
    thread = threading.Thread(target=lambda: found.extend(follow(source, start, 60)))
    thread.start()
    for _ in range(30):
        rig.commit(2)
    thread.join(PATIENCE)
    assert found == read(source, whole(source, start))


def test_following_shows_a_sign_of_life_when_nothing_happens(rig: Rig) -> None:
    rig.commit(1)
    source = rig.source
    windows = source.follow(source.lanes()[0], source.head(source.lanes()[0]))
    next(windows)
    for window in islice(windows, 15):
        assert (window.changes.num_rows, window.idle) == (0, True)
        assert window.upto
        assert source.position(window.upto) == source.position(source.head(source.lanes()[0]))


def test_a_whole_windows_cursor_goes_on_where_it_ended(rig: Rig) -> None:
    rig.commit(2)
    source = rig.source
    window: Window = next(source.follow(source.lanes()[0], beginning(source)))
    rig.commit(2)
    assert window.upto
    after = follow(source, window.upto, 2)
    assert [*from_batch(window.changes), *after] == read(source, whole(source))


def test_one_can_go_on_behind_any_change(rig: Rig) -> None:
    rig.commit(3)
    rig.commit(2)
    source, start = rig.source, beginning(rig.source)
    changes = read(source, whole(source))
    for number, change in enumerate(changes):
        cursor = source.behind(change, start)
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
    span, windows = whole(source), source.follow(lane, source.head(lane))
    next(windows)
    shared.replace()
    for deed in (lambda: next(windows), lambda: read(source, span), lambda: source.settle("p", lane, span.upto)):
        with pytest.raises(SourceRewound):
            deed()


def test_settling_is_idempotent_and_keeps_what_is_needed(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    start = beginning(source)
    slow, fast = (source.behind(changes[number], start) for number in (0, 2))
    assert source.registered("fast", lane) is None
    source.settle("slow", lane, slow)
    for _ in range(3):
        shared.rest()
        source.settle("fast", lane, fast)
    assert source.registered("fast", lane) == source.position(fast)
    assert source.registered("slow", lane) == source.position(slow)
    assert read(source, whole(source, slow)) == changes[1:]
    shared.rest()
    assert source.settle("fast", lane, fast).pruned == 0


def test_a_reader_is_registered_at_once_also_backwards_until_it_is_forgotten(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    start = beginning(source)
    late, early = (source.behind(changes[number], start) for number in (3, 1))
    source.register("p", lane, late)
    source.register("p", lane, early)
    assert source.registered("p", lane) == source.position(early)
    shared.rest()
    source.settle("other", lane, source.head(lane))
    assert read(source, whole(source, early)) == changes[2:]
    assert [(one.pipeline, one.is_gone, one.is_released) for one in source.readers() if one.pipeline == "p"] == [
        ("p", False, False)
    ]
    assert source.forget("p")
    assert not source.forget("p")
    assert source.registered("p", lane) is None


def test_one_can_begin_before_the_first_change_of_a_time(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(2)
    before = datetime.now(UTC) - timedelta(days=1)
    assert len(read(source, whole(source, source.since(lane, before)))) == 2
    assert read(source, whole(source, source.since(lane, datetime.now(UTC) + timedelta(days=1)))) == []
    first, second = read(source, whole(source))
    assert second in read(source, whole(source, source.since(lane, datetime.fromtimestamp(second.at / 1e6, UTC))))
    assert first.at <= second.at


A, B = Owner("a" * 16, "a.db", "here:1"), Owner("b" * 16, "b.db", "here:2")


def test_a_registration_belongs_to_one_state_and_that_of_another_changes_nothing(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    slow = source.behind(changes[0], beginning(source))
    source.register("p", lane, slow, A)
    for deed in (source.register, source.settle):
        for owner in (B, None):
            shared.rest()
            with pytest.raises(SourceOwned) as refused:
                deed("p", lane, source.head(lane), owner)
            assert all(said in refused.value.message for said in ("p registered", "a.db", "here:1", "last contact"))
            assert "penstock forget FILE" in refused.value.remedy
    assert source.registered("p", lane) == source.position(slow)
    assert [one.owner for one in source.readers()] == [A]
    shared.rest()
    source.settle("other", lane, source.head(lane))
    assert read(source, whole(source, slow)) == changes[1:]
    shared.rest()
    source.settle("p", lane, source.head(lane), A)
    assert source.registered("p", lane) == source.position(source.head(lane))


@pytest.mark.parametrize("name", ["register", "settle"])
def test_a_registration_without_an_owner_is_adopted_by_the_first_state_that_comes(shared: SharedRig, name: str) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(2)
    head = source.head(lane)
    source.register("p", lane, head)
    getattr(source, name)("p", lane, head, A)
    with pytest.raises(SourceOwned):
        getattr(source, name)("p", lane, head, B)
    source.settle("p", lane, head, A)


def test_a_state_that_forgets_the_registration_of_another_takes_it_over_where_it_stands(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(4)
    changes = read(source, whole(source))
    slow = source.behind(changes[1], beginning(source))
    source.register("p", lane, slow, A)
    assert source.forget("p", B)
    assert (source.registered("p", lane), [one.owner for one in source.readers()]) == (source.position(slow), [B])
    shared.rest()
    source.settle("other", lane, source.head(lane))
    assert read(source, whole(source, slow)) == changes[2:]
    for deed in (source.register, source.settle):
        with pytest.raises(SourceOwned):
            deed("p", lane, source.head(lane), A)
    source.register("p", lane, source.head(lane), B)
    assert source.forget("p", B)
    assert source.registered("p", lane) is None
    source.settle("p", lane, source.head(lane), A)


def test_what_everybody_has_delivered_goes(shared: SharedRig) -> None:
    source, lane = shared.source, shared.source.lanes()[0]
    shared.commit(6)
    source.settle("one", lane, source.head(lane))
    shared.rest()
    source.settle("one", lane, source.head(lane))
    assert len(read(source, whole(source))) < 6
    shared.commit(1)
    assert len(follow(source, source.begin(lane, "beginning"), 1)) >= 1
