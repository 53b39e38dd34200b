"""Histories on which simpler readers fail: nothing is skipped, nothing waits, repeats are the same."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from boxes import Box, Connection, Tail, Values
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from examples import examples
from facts import row_id
from penstock.change import Change, from_batch
from penstock.following import follow
from penstock.outbox import stash
from penstock.source import ANONYMOUS, Span, Window
from penstock.sources.outbox.log import reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.rows import PAGE_BYTES
from penstock.sources.outbox.source import LANE
from penstock.sources.outbox.window import LITTLE


def test_a_transaction_that_stays_open_slows_nobody(box: Box) -> None:
    idle = box.writer()
    box.put(idle, "idle")
    box.execute("insert into {} (topic, value) select 't', 'v' from generate_series(1, 2000)")
    box.source.head(LANE)
    box.commit("next")
    with reading(box.dsn, Names(box.table)) as log:
        explained = log.connection.execute(
            b"explain (analyze, format json) " + log.windows._sql.waiting.encode()  # the part that looks for what is new
        ).fetchone()
    assert explained
    touched = [node["Actual Rows"] for node in nodes(explained[0][0]["Plan"]) if node.get("Relation Name") == box.table]
    assert sum(touched) <= 2  # and not the 2 000 that are settled or wait for it


def nodes(plan: Any) -> list[Any]:
    return [plan, *(inner for one in plan.get("Plans", []) for inner in nodes(one))]


def test_ids_of_aborted_transactions_leave_no_trace(box: Box, values: Values) -> None:
    aborted = box.writer()
    box.put(aborted, "a", "b")
    box.commit("c")
    aborted.rollback()
    box.commit("d")
    assert [(change.position, row_id(change)) for change in box.changes()] == [(1, 3), (2, 4)]
    assert values(box.changes()) == ["c", "d"]


def test_savepoints_come_with_their_transaction_and_not_when_rolled_back(box: Box, values: Values) -> None:
    ours, writer = Tail(box, values), box.writer()
    with writer.transaction():
        box.put(writer, "before")
        with writer.transaction():
            box.put(writer, "inside")
        with writer.transaction() as undone:
            box.put(writer, "undone")
            raise psycopg.Rollback(undone)
        box.commit("other")
        assert ours.news() == ["other"]
    writer.commit()
    assert ours.news() == ["before", "inside"]


def test_a_first_write_inside_a_savepoint_counts_as_its_transaction(box: Box, values: Values) -> None:
    ours, writer = Tail(box, values), box.writer()
    writer.execute("select 1")
    writer.execute("savepoint s")
    box.put(writer, "inside")
    box.commit("other")
    assert ours.news() == ["other"]
    writer.execute("release savepoint s")
    writer.commit()
    assert ours.news() == ["inside"]


def test_a_prepared_transaction_comes_when_it_is_committed_by_whomever(box: Box, values: Values) -> None:
    ours, writer = Tail(box, values), box.writer()
    box.put(writer, "prepared")
    writer.execute(f"prepare transaction '{box.table}'")
    writer.commit()
    writer.close()
    box.commit("other")
    assert ours.news() == ["other"]
    box.execute("commit prepared '{}'")
    assert ours.news() == ["prepared"]


def test_a_key_written_in_sequence_comes_so_though_the_later_transaction_is_the_older(box: Box, values: Values) -> None:
    """The second writer had its transaction id first: to read in the order of transactions would turn the two round."""
    older = box.writer()
    older.execute("select pg_current_xact_id()")
    box.commit("first")
    box.put(older, "second")
    older.commit()
    first, second = box.changes()
    assert values([first, second]) == ["first", "second"]
    assert (first.transaction or 0) > (second.transaction or 0)


def test_a_window_is_recorded_before_anything_of_it_is_given(box: Box) -> None:
    box.commit("a", "b")
    follower = follow(box.source, LANE, box.start, ANONYMOUS)
    given = next(follower)
    assert given.changes.num_rows == 2
    assert box.execute("select after, rows from {}_window where rows > 0") == [(0, 2)]
    late = box.writer()
    box.put(late, "late")
    late.commit()
    again = next(follow(box.source, LANE, box.start, ANONYMOUS))  # the first window again, without what has come since
    assert again.changes == given.changes
    follower.close()


def test_nothing_is_given_of_a_window_whose_record_is_refused_in_the_end(box: Box) -> None:
    box.execute("create function {}_refuse() returns trigger language plpgsql as $$ begin raise 'no room'; end $$")
    box.execute(
        "create constraint trigger refuse after insert on {}_window deferrable initially deferred"
        " for each row execute function {}_refuse()"
    )
    box.commit("a")
    with pytest.raises(psycopg.errors.RaiseException, match="no room"):
        next(follow(box.source, LANE, box.start, ANONYMOUS))
    box.execute("drop trigger refuse on {}_window")
    assert next(follow(box.source, LANE, box.start, ANONYMOUS)).changes.num_rows == 1


def test_windows_that_come_with_their_rows_and_those_that_are_a_row_too_long_are_read_alike(box: Box) -> None:
    follower = follow(box.source, LANE, box.start, ANONYMOUS)
    found: list[Change] = []
    for rows in (LITTLE, LITTLE + 1):
        box.execute(f"insert into {{}} (topic, key, value) select 't', 'k', (i::text)::bytea from generate_series(1, {rows}) i")
        given = next(window for window in follower if window.changes.num_rows)
        assert (given.changes.num_rows, given.upto is None) == (rows, False)
        found += from_batch(given.changes)
    follower.close()
    assert found == box.changes()


def test_two_followers_share_one_chain_of_windows(box: Box, values: Values) -> None:
    followers = [follow(box.source, LANE, box.start, ANONYMOUS) for _ in range(2)]
    found: list[list[Change]] = [[], []]
    for n in range(20):
        box.commit(f"m{n}", f"n{n}")
        found[n % 2] += list(from_batch(next(followers[n % 2]).changes))
    for number, follower in enumerate(followers):
        while len(found[number]) < 40:
            found[number] += list(from_batch(next(follower).changes))
        follower.close()
    assert found[0] == found[1] == box.changes()


def test_a_long_window_is_read_in_pages_from_any_place(box: Box) -> None:
    box.execute("insert into {} (topic, key, value) select 't', 'k', (i::text)::bytea from generate_series(1, 25000) i")
    changes = box.changes()
    assert [change.position for change in changes] == list(range(1, 25001))
    assert [(change.after or b"").decode() for change in changes] == [str(n) for n in range(1, 25001)]
    place = box.source.begin(LANE, "12345")
    assert box.changes(place) == changes[12345:]
    follower = follow(box.source, LANE, place, ANONYMOUS)
    pieces = [next(follower), next(follower)]
    assert [piece.upto is None for piece in pieces] == [True, False]
    assert [change for piece in pieces for change in from_batch(piece.changes)] == changes[12345:]
    follower.close()


def test_a_page_ends_before_it_takes_much_more_memory_than_a_limit(box: Box) -> None:
    """Also where the rows are few, and where they would come with the window that was recorded for them."""
    follower, found = follow(box.source, LANE, box.start, ANONYMOUS), list[Change]()
    for rows in (4, LITTLE + 1):  # each row takes a third of a page
        box.execute(
            f"insert into {{}} (topic, key, value) select 't', 'k', convert_to(repeat('x', case when i <= 4"
            f" then {PAGE_BYTES // 3} else 1 end), 'UTF8') from generate_series(1, {rows}) i"
        )
        given: list[Window] = []
        while not given or given[-1].upto is None:
            given += [window for window in (next(follower),) if window.changes.num_rows]
        assert [one.changes.num_rows for one in given] == [3, rows - 3]
        found += [change for one in given for change in from_batch(one.changes)]
    follower.close()
    assert found == box.changes()
    assert [change.position for change in found] == list(range(1, 4 + LITTLE + 2))


def test_a_row_that_is_larger_than_a_page_comes_alone(box: Box) -> None:
    big = f"convert_to(repeat('x', {2 * PAGE_BYTES}), 'UTF8')"
    box.execute(f"insert into {{}} (topic, key, value) values ('t', 'k', {big}), ('t', 'k', {big}), ('t', 'k', null)")
    with reading(box.dsn, Names(box.table)) as log:
        log.head()
        pages = [len(rows) for rows in log.windows.pages(log.windows.tip(), 0)]
    assert pages == [1, 1, 1]


ACTIONS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["put", "put", "commit", "rollback", "savepoint", "undo", "read"])),
    min_size=25,
    max_size=60,
)


@settings(max_examples=examples(10), phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, seed=st.integers(0, 1 << 30))
def test_in_any_history_everything_committed_comes_once_and_in_order(
    box: Box, values: Values, actions: list[tuple[int, str]], seed: int
) -> None:
    """Four writers at a time; the model knows what each has pending, and what had committed before another was stashed."""
    dice, tail, writers = random.Random(seed), Tail(box, values), [box.writer() for _ in range(4)]
    tail.news()  # of the example before
    pending: list[list[str]] = [[] for _ in writers]
    marks: list[int | None] = [None] * 4
    committed: list[str] = []
    before: dict[str, int] = {}
    seen: list[str] = []
    for number, (who, action) in enumerate([*actions, *((who, "commit") for who in range(4))]):
        writer: Connection = writers[who]
        if action == "put":
            value = f"{who}.{number}"
            stash(writer, "t", str(dice.randrange(2)), value, table=box.table)
            pending[who].append(value)
            before[value] = len(committed)
        elif action == "savepoint":
            writer.execute("savepoint s")
            marks[who] = len(pending[who])
        elif action == "undo" and marks[who] is not None:
            writer.execute("rollback to savepoint s")
            del pending[who][marks[who] :]
        elif action in ("commit", "rollback"):
            getattr(writer, action)()
            committed += pending[who] if action == "commit" else []
            pending[who], marks[who] = [], None
        elif action == "read":
            seen += tail.news()
    seen += tail.news()
    for writer in writers:
        writer.close()
    assert sorted(seen) == sorted(committed)
    place = {value: number for number, value in enumerate(seen)}
    assert all(place[earlier] < place[value] for value in committed for earlier in committed[: before[value]])


def test_a_span_that_was_read_is_the_same_whatever_commits_later(box: Box) -> None:
    late = box.writer()
    box.put(late, "late")
    box.commit("a")
    head = box.source.head(LANE)
    first = list(box.source.read(Span(LANE, box.start, head), ANONYMOUS))
    late.commit()
    box.commit("b")
    assert list(box.source.read(Span(LANE, box.start, head), ANONYMOUS)) == first


def test_a_window_far_from_the_end_is_read_without_what_lies_behind_it(box: Box) -> None:
    box.commit("first")
    box.source.head(LANE)
    box.execute("insert into {} (topic, value) select 't', 'v' from generate_series(1, 2000)")
    box.source.head(LANE)
    with reading(box.dsn, Names(box.table)) as log:
        window = log.windows.at(0)
        facts = {"since": window.since, "upto": window.upto, "after": 0, "limit": 10, "position": 0, "id": 0}
        explained = log.connection.execute(b"explain (analyze, format json) " + log.windows._sql.short.encode(), facts).fetchone()
    assert explained
    scans = [node for node in nodes(explained[0][0]["Plan"]) if node.get("Relation Name") == box.table]
    assert sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans) <= 1
