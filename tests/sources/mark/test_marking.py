"""Marking, taking over, purging and resetting: whose rows are whose, in every database."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from desks import Desk
from hypothesis import given
from hypothesis import strategies as st

from deadline import PATIENCE, until
from facts import row_id
from penstock.change import Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid, CursorInvalid, OutboxMissing, TermLost, TransformInvalid
from penstock.following import Polled, beating, follow
from penstock.source import ANONYMOUS, Span, Stamp, Window, since
from penstock.sources.outbox.mark import follow as mark_follow
from penstock.sources.outbox.mark.source import LANE, MarkSource
from penstock.sources.outbox.mark.stamp import astray, mark, of, position_of, renumbered, stamp_of
from penstock.sources.outbox.rows import PAGE_BYTES
from penstock.spark.stop_before import StopBefore

STAMPS = st.builds(Stamp, st.integers(0, (1 << 40) - 1), st.integers(0, (1 << 20) - 1))
POSITIONS = st.integers(0, (1 << 52) - 1)


@given(STAMPS, POSITIONS, STAMPS, POSITIONS)
def test_marks_sort_as_what_they_say_and_are_no_random_uuids(a: Stamp, p: int, b: Stamp, q: int) -> None:
    one, other = mark(a, p), mark(b, q)
    assert (one < other) == ((a, p) < (b, q))
    assert (stamp_of(one), position_of(one)) == (a, p)
    assert (one[14], one[19]) == ("8", "8"), "version 8, of which no random one is"


def test_what_no_mark_can_hold_is_refused() -> None:
    with pytest.raises(OverflowError):
        mark(Stamp(1 << 40, 0), 1)


@given(st.lists(st.tuples(STAMPS, st.integers(1, 20)), max_size=12))
def test_rows_of_others_keep_their_order_and_none_has_the_position_of_another(found: list[tuple[Stamp, int]]) -> None:
    rows = [(row, mark(stamp, position)) for row, (stamp, position) in enumerate(found)]
    kept, stale = renumbered(rows, after=10)
    positions = [position for _, _, position in kept]
    assert positions == sorted(set(positions))
    assert sorted([row for row, *_ in kept] + [row for row, _ in stale]) == [row for row, _ in rows]
    was = [position_of(marked) for _, marked, _ in kept]
    assert was == sorted(was)
    assert all(position > 10 for position in was)
    assert all(position_of(marked) <= 10 for _, marked in stale)


@given(st.lists(st.tuples(st.booleans() | st.integers(1, 20), st.integers(1, 2)), max_size=12))
def test_behind_what_is_astray_nothing_of_a_key_stands_before_a_lower_id(found: list[tuple[int, int]]) -> None:
    own = Stamp(3, 1)
    marks = [None if position is False else mark(Stamp(2, 0) if position is True else own, position) for position, _ in found]
    rows = [(row, marked, key) for row, (marked, (_, key)) in enumerate(zip(marks, found, strict=True))]
    early = astray(rows, of(own))
    for key in (1, 2):
        left = [(row in early or not marked or marked < of(own).low, marked) for row, marked, one in rows if one == key]
        assert left == sorted(left, key=lambda one: (one[0], "" if one[0] else one[1])), "first by their marks, then by their ids"


def test_a_look_marks_and_reads_as_much_as_fills_a_page_and_goes_on_at_once(desk: Desk) -> None:
    desk.allow_large_values()
    third = PAGE_BYTES // 3
    desk.commit(*("x" * third for _ in range(5)), "y" * (4 * third), "z")
    reader = desk.reader(1)
    looks = [[len(one.after or "") // third for one in reader.look()] for _ in range(4)]
    assert looks == [[1, 1, 1], [1, 1, 4], [0], []]
    again = desk.reader(2)  # and what a predecessor has marked
    assert [[len(one.after or "") // third for one in again.look()] for _ in range(3)] == looks[:3]


def test_rows_come_in_the_order_of_ids_with_every_letter(desk: Desk) -> None:
    desk.commit("a", 'ü"\\', None, key="clé", names=["trace", "trace"], said=["x", "ß"])
    first, second, third = desk.reader(1).changes(3)
    assert first.position < second.position < third.position
    assert (first.table, first.key, first.op, third.op) == ("orders", "clé".encode(), "insert", "delete")
    assert (second.after, second.headers) == ('ü"\\'.encode(), (("trace", b"x"), ("trace", "ß".encode())))
    assert (third.before, third.after) == (None, None)
    assert first.at > 1_700_000_000_000_000


def test_a_row_whose_headers_do_not_match_says_so_and_holds_nobody_up(desk: Desk) -> None:
    desk.commit("bad", names=["one"], said=["x", "y"])
    desk.commit("good")
    bad, good = desk.reader(1).changes(2)
    assert bad.error == "unequal number of header keys (1) and values (2)"
    assert good.error is None


def test_a_lower_id_that_is_committed_later_comes_later_and_is_not_lost(desk: Desk) -> None:
    if desk.is_sqlite:  # which has one writer at a time
        return
    with closing(desk.connect()) as early, closing(desk.connect()) as late:
        desk.put(early, "early id")
        desk.put(late, "late id")
        late.commit()
        reader = desk.reader(1)
        assert reader.ids(1) == [2]
        reader.lease.purge([2])
        assert reader.look() == []
        early.commit()
    assert reader.ids(1) == [1]


def test_a_reader_marks_what_it_gives_and_gives_it_once(desk: Desk) -> None:
    desk.commit("a", "b")
    reader = desk.reader(3, 7)
    found = reader.changes(2)
    assert desk.marks() == {row_id(change): mark(Stamp(3, 7), change.position) for change in found}
    assert reader.look() == []
    desk.commit("c")
    [third] = reader.changes(1)
    assert third.position > found[1].position


@pytest.mark.parametrize(
    "foreign",
    [str(uuid4()), "50ffffff-ffff-4fff-bfff-ffffffffffff", "50000000-0000-4000-8000-000000000001"],
    ids=["any", "late", "early"],
)
def test_rows_of_other_programs_are_salvaged(desk: Desk, foreign: str) -> None:
    desk.commit("a", "b")
    desk.execute(f"update {{}} set leader_id = '{foreign}' where id = 1")
    assert desk.reader(1).ids(2) == [1, 2]


def test_a_row_that_was_reset_comes_again(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    reader = desk.reader(1)
    [a, _, _] = reader.changes(3)
    reader.lease.reset([1])
    assert desk.marks()[1] is None
    [again] = reader.changes(1)
    assert (row_id(again), again.after) == (1, a.after)
    assert again.position > a.position


def test_a_successor_gets_what_was_left_in_the_same_order_at_the_same_positions(desk: Desk) -> None:
    for number in range(3):
        desk.commit("a", key=f"{number}")
    old = desk.reader(1)
    first = old.changes(3)
    old.lease.reset([1])
    [again] = old.changes(1)
    old.lease.purge([2])
    desk.commit("d")
    assert desk.reader(2).changes(3)[:2] == [first[2], again]


@pytest.mark.parametrize("is_marked_anew", [False, True])
def test_where_rows_were_given_back_a_successor_gets_none_of_their_keys_before_them(desk: Desk, is_marked_anew: bool) -> None:
    desk.commit("a", "b", "c")
    desk.commit("d", key="other")
    old = desk.reader(1)
    last = old.changes(4)[3]
    old.lease.reset([1, 2])  # c was on its way by then, and comes to nobody who could give it back
    if is_marked_anew:
        assert old.ids(2) == [1, 2]
    found = desk.reader(2).changes(4)
    assert [row_id(change) for change in found if change.key == last.key] == [4]
    assert [row_id(change) for change in found if change.key != last.key] == [1, 2, 3]
    assert last in found, "what is of another key keeps its place"


def test_nothing_an_old_leader_does_late_touches_rows_of_the_new_one(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    old = desk.reader(1)
    old.changes(3)
    new = desk.reader(2)
    new.changes(3)
    marks = desk.marks()
    for late in (old.lease.purge, old.lease.reset, old.lease.confirm):
        with pytest.raises(TermLost):
            late([2])
    assert old.look_in_vain()
    assert desk.marks() == marks
    new.lease.confirm([1, 2, 3])


def test_of_two_that_mark_at_the_same_moment_the_old_leader_gets_nothing_that_is_the_new_ones(desk: Desk) -> None:
    desk.commit("a", "b")
    old = desk.reader(1)
    assert len(old.changes(2)) == 2
    old.lease.reset([1, 2])
    marks = {row: mark(Stamp(2, 0), 1000 + row) for row in (1, 2)}
    found: list[bool] = []
    with closing(desk.connect()) as new:
        cursor = new.cursor()
        for row, stamped in marks.items():
            cursor.execute(f"update {desk.table} set leader_id = '{stamped}' where id = {row}")
        thread = Thread(target=lambda: found.append(old.look_in_vain()))
        thread.start()  # on Postgres and SQLite it waits for the rows
        thread.join(0.3)
        new.commit()
        thread.join(PATIENCE)
    assert found == [True]
    assert desk.marks() == marks


def test_who_has_a_successor_cannot_begin(desk: Desk) -> None:
    desk.commit("a")
    desk.reader(2).changes(1)
    with pytest.raises(TermLost):
        desk.reader(1).look()
    with pytest.raises(TermLost):
        next(follow(desk.source, LANE, desk.start, ANONYMOUS))


def test_a_second_pipeline_on_the_table_is_noticed_while_it_reads(desk: Desk) -> None:
    one = desk.reader(1)
    assert one.look() == []
    desk.commit("a")
    desk.reader(2).changes(1)
    with pytest.raises(TermLost, match="stop the other pipeline"):
        until(one.look)


def test_what_an_old_leader_marks_late_is_the_new_ones_all_the_same_and_settling_does_not_purge_it(desk: Desk) -> None:
    old, new = desk.reader(1), desk.reader(2, records=1)
    assert (old.look(), new.look()) == ([], [])
    desk.commit("a", "b")
    _, late = old.changes(2)
    until(lambda: time.time_ns() // 1000 > late.position + 1000)  # SQLite's clock has milliseconds
    [first] = new.changes(1)
    assert (row_id(first), first.position > late.position) == (1, True), "the watermark passes where the old leader has put b"
    assert desk.source.retention.settle("p", LANE, new.cursor).pruned == 1
    assert new.ids(1) == [2]


def test_settling_purges_what_was_delivered_and_nothing_else(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    reader = desk.reader(1)
    _, b, _ = reader.changes(3)
    assert desk.source.retention.settle("p", LANE, desk.source.cursor_after(b, reader.cursor)).pruned == 2
    assert desk.source.retention.settle("p", LANE, desk.source.cursor_after(b, reader.cursor)).pruned == 0
    assert list(desk.marks()) == [3]
    assert desk.source.retention.settle("p", LANE, desk.start).pruned == 0


def test_a_successor_does_not_repeat_what_was_delivered_and_not_purged_yet(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    old = desk.reader(1)
    _, b, _ = old.changes(3)
    assert desk.reader(1, 1, desk.source.cursor_after(b, old.cursor)).ids(1) == [3]
    assert list(desk.marks()) == [3]


def test_rows_that_somebody_has_deleted_count_as_done(desk: Desk) -> None:
    desk.commit("a", "b")
    reader = desk.reader(1)
    reader.changes(2)
    desk.execute("delete from {} where id = 1")
    reader.lease.confirm([1, 2])
    reader.lease.reset([1])
    reader.lease.purge([1, 2])
    assert desk.marks() == {}


def test_a_batch_reads_until_there_is_no_more_and_passes_its_goal(desk: Desk) -> None:
    assert desk.source.position(desk.source.row_lease.target(LANE)) == 0
    desk.commit("a", "b")
    goal = desk.source.row_lease.target(LANE)
    desk.commit("c")

    def read(*stamp: int) -> list[Change]:
        span = Span(LANE, desk.start, goal)
        return [change for batch in desk.source.read(span, Stamp(*stamp)) for change in from_batch(batch)]

    found = read(1, 0)
    assert [row_id(change) for change in found] == [1, 2, 3]
    assert found[0].position > desk.source.position(goal)
    assert read(1, 1) == found
    assert list(desk.source.read(Span(LANE, goal, goal), Stamp(1, 2))) == []


def test_who_only_looks_can_read_what_was_numbered_again_and_again(desk: Desk) -> None:
    desk.commit("a", "b")
    span = Span(LANE, desk.start, desk.source.head(LANE))
    desk.commit("c")
    assert desk.source.split(span, 4) == [span]
    first, second = (
        [row_id(change) for batch in desk.source.read(span, ANONYMOUS) for change in from_batch(batch)] for _ in range(2)
    )
    assert first == second == [1, 2]
    assert desk.source.position(desk.source.head(LANE)) > desk.source.position(span.upto)
    assert desk.reader(1).ids(3) == [1, 2, 3]


def test_the_backlog_counts_what_is_not_delivered(desk: Desk) -> None:
    assert desk.source.backlog(LANE, desk.start).changes == 0
    desk.commit("a", "b", "c")
    reader = desk.reader(1)
    a, _, _ = reader.changes(3)
    found = desk.source.backlog(LANE, desk.source.cursor_after(a, reader.cursor))
    assert found.changes == 2
    assert found.oldest_at


def test_a_pipeline_that_begins_takes_also_rows_with_marks_of_later_epochs(desk: Desk) -> None:
    desk.commit("a")
    desk.reader(57).changes(1)
    desk.source.retention.register("p", LANE, desk.start)
    assert desk.reader(1).ids(1) == [1]
    assert desk.source.retention.forget("p")
    assert not desk.source.retention.forget("p")


def test_what_others_were_given_can_be_looked_at_without_taking_it_from_them(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    reader = desk.reader(2, 1)
    given = reader.changes(3)
    desk.commit("d")
    marks = desk.marks()
    assert [change for batch in desk.source.row_lease.leased(LANE, desk.start) for change in from_batch(batch)] == given
    behind = desk.source.cursor_after(given[1], desk.start)
    assert [change for batch in desk.source.row_lease.leased(LANE, behind) for change in from_batch(batch)] == given[2:]
    assert desk.marks() == marks
    assert [change.after for change in reader.changes(1)] == [b"d"]


def test_a_bar_before_a_row_keeps_it_and_all_later_rows_back(desk: Desk) -> None:
    desk.commit("a", "b", "c")
    given = desk.reader(2).changes(3)
    barred = pickle.loads(pickle.dumps(StopBefore(given[1], TransformInvalid("it raises on b"))))
    followed = barred.cut(follow(desk.source, LANE, desk.start, Stamp(3, 0)))
    read = desk.source.read(Span(LANE, desk.start, desk.source.row_lease.target(LANE)), Stamp(4, 0))
    drained = barred.cut(Window(changes, None, idle=False) for changes in read)
    for windows in (followed, drained):
        assert [change.place for change in from_batch(next(windows).changes)] == [given[0].place]
        with pytest.raises(TransformInvalid, match="raises on b"):
            next(windows)


@pytest.mark.parametrize("desk", ["sqlite"], indirect=True)  # others take no such time
def test_a_row_whose_time_nobody_can_read_comes_like_all_others(desk: Desk) -> None:
    desk.commit("a", "b")
    desk.execute("update {} set create_time = '1700000000' where kafka_value = 'a'")
    first, second = desk.reader(1).changes(2)
    assert abs(first.at - second.at) < 600_000_000


def test_signs_of_life_need_no_look_at_the_table(desk: Desk) -> None:
    looks = 0

    @contextmanager
    def counted(*, anew: bool = False) -> Iterator[Any]:
        nonlocal looks
        with desk.source._opened(anew=anew) as table:
            look = table.mark

            def looking(*what: Any) -> Any:
                nonlocal looks
                looks += 1
                return look(*what)

            table.mark = looking
            yield table

    windows = beating(Polled(mark_follow.follow(counted, Stamp(1, 0), desk.start, 100, backoff=timedelta(days=1))), desk.start)

    def are_five_without_a_look() -> bool:
        before = looks
        assert [next(windows).changes.num_rows for _ in range(5)] == [0] * 5
        return looks == before

    until(are_five_without_a_look)  # the pauses between looks double


def test_a_moment_is_refused_since_delivered_rows_are_gone(desk: Desk) -> None:
    with pytest.raises(ConfigInvalid, match="a table with reader mark keeps no delivered messages") as refused:
        since(desk.source, LANE, datetime.now(UTC))
    assert refused.value.remedy.endswith("delete rows that must not be sent")


def test_no_part_of_the_source_shows_the_password() -> None:
    source = MarkSource(database="postgresql://anna:s3cret@db/app")
    assert "s3cret" not in repr([source, source.retention, source.row_lease])


def test_what_cannot_be_is_said(desk: Desk) -> None:
    for place in ("now", "7", "yesterday"):
        with pytest.raises(ConfigInvalid, match=r"no place to start at .* delete rows that are not to be sent"):
            desk.source.begin(LANE, place)
    with pytest.raises(CursorInvalid):
        desk.source.position(Cursor('{"position":1}'))
    with pytest.raises(OutboxMissing, match="nowhere"):
        next(follow(MarkSource(database=desk.source.database, table="nowhere"), LANE, desk.start, Stamp(1, 0)))
