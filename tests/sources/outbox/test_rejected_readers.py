"""Ways to read an outbox that were considered and rejected, each on a history on which it fails and ours does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from boxes import Box, Tail, Values

from penstock.change import from_batch
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.outbox.source import LANE

News = Callable[[], list[str]]
VALUE = "convert_from(value, 'UTF8')"


def offset_tailing(box: Box, isolation: str = "read committed") -> News:
    """Everything above the highest id that was seen."""
    seen = [0]

    def news() -> list[str]:
        with psycopg.connect(box.dsn) as connection:
            connection.execute(f"set transaction isolation level {isolation}".encode())
            sql = f"select id, {VALUE} from {box.table} where id > {seen[0]} order by id"
            found: list[Any] = connection.execute(sql.encode()).fetchall()
        seen[0] = max([seen[0], *(row[0] for row in found)])
        return [row[1] for row in found]

    return news


def time_window(box: Box, grace: str = "0 s") -> News:
    """Everything made since the last look, but for the last moments, in which somebody might not have committed yet."""
    seen = ["-infinity"]

    def news() -> list[str]:
        [(upto,)] = box.execute(f"select (clock_timestamp() - interval '{grace}')::text")
        found: list[Any] = box.execute(
            f"select {VALUE} from {{}} where created_at > '{seen[0]}' and created_at <= '{upto}' order by created_at, id"
        )
        seen[0] = str(upto)
        return [row[0] for row in found]

    return news


def pinned(box: Box) -> News:
    """The ids in an unbroken row; where one is missing, it waits for it."""
    seen = [0]

    def news() -> list[str]:
        told = []
        for number, value in box.execute(f"select id, {VALUE} from {{}} where id > {seen[0]} order by id"):
            if number != seen[0] + 1:
                break
            seen[0] += 1
            told.append(str(value))
        return told

    return news


def below_the_oldest_open(box: Box) -> News:
    """Nothing of a transaction that is younger than the oldest that is open."""
    seen = [0]

    def news() -> list[str]:
        sql = f"select xid::text::bigint, {VALUE} from {{}} where xid < pg_snapshot_xmin(pg_current_snapshot()) order by id"
        found: list[Any] = [row for row in box.execute(sql) if int(str(row[0])) > seen[0]]
        seen[0] = max([seen[0], *(row[0] for row in found)])
        return [row[1] for row in found]

    return news


def remembering(box: Box) -> News:
    """The whole table, without what it remembers to have sent."""
    sent: set[object] = set()

    def news() -> list[str]:
        fresh = [row for row in box.execute(f"select id, {VALUE} from {{}} order by id") if row[0] not in sent]
        sent.update(row[0] for row in fresh)
        return [str(row[1]) for row in fresh]

    return news


def one_batch_at_a_time(box: Box) -> News:
    """The first few rows, until they are acknowledged and deleted."""
    return lambda: [str(row[0]) for row in box.execute(f"select {VALUE} from {{}} order by id limit 2")]


def test_a_late_commit_below_a_published_id_is_found_where_tailing_by_id_skips_it(box: Box, values: Values) -> None:
    ours, by_id, late = Tail(box, values), offset_tailing(box), box.writer()
    box.put(late, "late")
    box.commit("early")
    assert (ours.news(), by_id()) == (["early"], ["early"])
    late.commit()
    assert by_id() == []  # lost for ever
    assert ours.news() == ["late"]
    assert values(box.changes()) == ["early", "late"]


def test_to_read_what_is_uncommitted_helps_nobody_here(box: Box, values: Values) -> None:
    """Postgres shows it to no one; where it were shown, it could still be rolled back."""
    ours, dirty, late = Tail(box, values), offset_tailing(box, "read uncommitted"), box.writer()
    box.put(late, "late")
    box.commit("early")
    assert (ours.news(), dirty()) == (["early"], ["early"])
    late.commit()
    assert (ours.news(), dirty()) == (["late"], [])


def test_a_transaction_longer_than_any_grace_is_found_where_a_time_window_skips_it(box: Box, values: Values) -> None:
    ours, by_time, late = Tail(box, values), time_window(box, grace="10 ms"), box.writer()
    box.put(late, "late")
    box.commit("early")
    late.execute("select pg_sleep(0.05)")
    assert (ours.news(), by_time()) == (["early"], ["early"])
    late.commit()
    assert (ours.news(), by_time()) == (["late"], [])


def test_a_writer_whose_clock_is_behind_is_found_where_a_timestamp_skips_it(box: Box, values: Values) -> None:
    ours, by_time = Tail(box, values), time_window(box)
    box.commit("early")
    assert (ours.news(), by_time()) == (["early"], ["early"])
    box.execute("insert into {} (topic, value, created_at) values ('t', 'slow clock', now() - interval '1 minute')")
    assert (ours.news(), by_time()) == (["slow clock"], [])


def test_an_id_that_was_rolled_back_holds_nobody_up_where_waiting_for_a_gap_to_close_does(box: Box, values: Values) -> None:
    ours, gapless, aborted = Tail(box, values), pinned(box), box.writer()
    box.commit("first")
    box.put(aborted, "never")
    box.commit("next")
    aborted.rollback()
    assert ours.news() == ["first", "next"]
    assert gapless() == ["first"]
    box.commit("later")
    assert (ours.news(), gapless()) == (["later"], [])  # for ever


def test_a_transaction_that_stays_open_stalls_nobody_where_waiting_for_the_oldest_does(box: Box, values: Values) -> None:
    ours, waiting, idle = Tail(box, values), below_the_oldest_open(box), box.writer()
    box.put(idle, "idle")
    for n in range(3):
        box.commit(f"m{n}")
        assert ours.news() == [f"m{n}"]
    assert waiting() == []  # stalled
    idle.rollback()
    assert ours.news() == []


def test_transaction_ids_have_64_bits_and_never_begin_again(box: Box) -> None:
    box.commit("m")
    assert box.execute("select pg_typeof(xid)::text from {}") == [("xid8",)]
    assert box.execute("select '5000000000'::xid8 > '4294967296'::xid8") == [(True,)]


def test_a_reader_that_starts_again_goes_on_where_one_that_only_remembers_repeats_everything(box: Box, values: Values) -> None:
    ours, before = Tail(box, values), remembering(box)
    box.commit("a", "b")
    assert (ours.news(), before()) == (["a", "b"], ["a", "b"])
    again = Tail(box, values)
    again.cursor = ours.cursor  # which is text, and was recorded
    assert (again.news(), remembering(box)()) == ([], ["a", "b"])


def test_what_comes_next_is_given_before_anything_is_acknowledged_where_batches_wait(box: Box, values: Values) -> None:
    batches, follower = one_batch_at_a_time(box), follow(box.source, LANE, box.start, ANONYMOUS)
    for n in range(3):
        box.commit(f"a{n}", f"b{n}")
        assert values(list(from_batch(next(one for one in follower if one.changes.num_rows).changes))) == [f"a{n}", f"b{n}"]
        assert batches() == ["a0", "b0"]
    follower.close()
