"""A sequence whose ids do not tell the order of commits: nothing is given by it, and it is put right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from boxes import Box, Tail, Values

from deadline import PATIENCE, until
from penstock.change import from_batch
from penstock.errors import OutboxUnfit
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.outbox import settle
from penstock.sources.outbox.log import reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.sequence import IS_FIT, identity_sql, mend
from penstock.sources.outbox.source import LANE
from penstock.sources.outbox.window import Sql

FLAWS = {
    "cache": "alter table {} alter column id set cache 10",
    "cycle": "alter table {} alter column id set cycle",
    "increment": "alter table {} alter column id set increment -1 set minvalue -1000",
}


def write_out_of_order(box: Box) -> None:
    """Of one key, one after the other: what is written first gets the greater id, where sessions take ids ahead."""
    early, late = box.writer(), box.writer()
    for writer, value, key in ((early, "other", "o"), (late, "first", "k"), (early, "second", "k"), (late, "third", "k")):
        box.put(writer, value, key=key)
        writer.commit()


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_running_reader_gives_nothing_by_ids_that_do_not_tell_the_order(box: Box, flaw: str, values: Values) -> None:
    following = follow(box.source, LANE, box.start, ANONYMOUS)
    box.commit("before")
    given = []
    while not given:
        given = list(from_batch(next(following).changes))
    box.execute(FLAWS[flaw])
    write_out_of_order(box)
    with pytest.raises(OutboxUnfit, match=f"{box.table}_id_seq") as refused:  # noqa: PT012 - a reader raises when it looks
        while True:
            given += from_batch(next(following).changes)
    assert values(given) == ["before"]
    assert refused.value.remedy == f"penstock outbox init DSN --table {box.table}"
    assert init(box.dsn, Names(box.table)) is False
    assert values(box.changes())[1:] == ["other", "first", "second", "third"]


@pytest.mark.parametrize("flaw", FLAWS)
def test_no_window_is_recorded_by_ids_that_do_not_tell_the_order(box: Box, flaw: str) -> None:
    box.execute(FLAWS[flaw])
    write_out_of_order(box)
    with reading(box.dsn, Names(box.table)) as log:
        assert log.windows.advance(log.life().incarnation, 1) == []
        init(box.dsn, Names(box.table))
        [(window, rows)] = log.windows.advance(log.life().incarnation, 1)
    assert (window.rows, len(rows)) == (4, 4)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_reader_does_not_start_where_ids_do_not_tell_the_order(box: Box, flaw: str) -> None:
    box.execute(FLAWS[flaw])
    for asked in (lambda: next(follow(box.source, LANE, box.start, ANONYMOUS)), lambda: box.source.head(LANE), box.changes):
        with pytest.raises(OutboxUnfit):
            asked()


def test_what_was_recorded_before_keeps_its_positions_when_the_sequence_is_put_right(box: Box, values: Values) -> None:
    ours = Tail(box, values)
    box.commit("a", "b")
    assert ours.news() == ["a", "b"]
    box.execute(FLAWS["cache"])
    write_out_of_order(box)
    init(box.dsn, Names(box.table))
    assert values(box.changes()) == ["a", "b", "other", "first", "second", "third"]
    assert ours.news() == ["other", "first", "second", "third"]


def test_sessions_give_back_the_ids_that_they_have_taken_ahead(box: Box, values: Values) -> None:
    box.execute(FLAWS["cache"])
    early, late = box.writer(), box.writer()
    for writer in (early, late):
        box.put(writer, "taken")
        writer.commit()
    init(box.dsn, Names(box.table))
    for number, writer in enumerate((late, early, late, early)):
        box.put(writer, str(number))
        writer.commit()
    assert values(box.changes()) == ["taken", "taken", "0", "1", "2", "3"]


def test_no_window_is_recorded_while_ids_are_given_anew(box: Box, values: Values) -> None:
    """A reader of an earlier version records without a check of the sequence: it waits for the new ids."""
    names = Names(box.table)
    box.execute(FLAWS["cache"])
    write_out_of_order(box)
    with ThreadPoolExecutor() as pool, reading(box.dsn, names, anew=True) as log:
        unchecked = Sql(names).advance.replace(f" and {IS_FIT}", "").encode()
        assert unchecked != Sql(names).advance.encode()
        log.windows._advance = unchecked
        life, process = log.life().incarnation, log.connection.info.backend_pid
        with psycopg.connect(box.dsn) as mending:
            mend(mending, names)
            recording = pool.submit(log.windows.advance, life, 1)
            until(lambda: recording.done() or box.execute(f"select 1 where cardinality(pg_blocking_pids({process})) > 0"))
            assert not recording.done()
        [(window, rows)] = recording.result(PATIENCE)
    assert window.rows == 4
    assert [row[0] for row in rows] == [found for [found] in box.execute("select id from {} order by id")]
    assert values(box.changes()) == ["other", "first", "second", "third"]


@pytest.mark.parametrize("is_flawed", [False, True], ids=["sound", "flawed"])
def test_an_init_waits_for_a_purge_that_is_under_way(box: Box, is_flawed: bool) -> None:
    """Neither is refused because of a deadlock."""
    names = Names(box.table)
    box.commit("a")
    assert len(box.changes()) == 1
    if is_flawed:
        box.execute(FLAWS["cache"])
    with ThreadPoolExecutor() as pool, psycopg.connect(box.dsn) as purging:
        purging.execute(f"{settle._life(names)} for update skip locked".encode())
        settle._needed(purging, names)
        process = purging.info.backend_pid
        mending = pool.submit(init, box.dsn, names)
        waits = f"select 1 from pg_locks where {process} = any(pg_blocking_pids(pid))"
        until(lambda: mending.done() or box.execute(waits))
        purging.execute(f"delete from {names.rows}".encode())
        settle._forget_windows(purging, names, 1)
        purging.commit()
        assert mending.result(PATIENCE) is False


@pytest.mark.parametrize(
    "default", ["(extract(epoch from clock_timestamp()) * 1e6)::bigint", "nextval('{}_own') / 10", "-nextval('{}_own')"]
)
def test_ids_that_come_from_no_sequence_are_refused(box: Box, default: str) -> None:
    box.execute("create sequence {}_own")
    box.execute("alter table {} alter column id drop identity")
    box.execute(f"alter table {{}} alter column id set default {default}")
    with pytest.raises(OutboxUnfit, match="sequence") as refused:
        box.source.head(LANE)
    assert "add generated always as identity" in refused.value.remedy
    with pytest.raises(OutboxUnfit):
        init(box.dsn, Names(box.table))
    with psycopg.connect(box.dsn, autocommit=True) as connection:
        for statement in identity_sql(Names(box.table)).split("; "):
            connection.execute(statement.encode())
    box.commit("fine")
    assert len(box.changes()) == 1


def test_a_sequence_that_is_named_in_the_default_is_as_good_as_an_identity(box: Box, values: Values) -> None:
    box.execute("alter table {} alter column id drop identity")
    box.execute("create sequence {}_own")
    box.execute("alter table {} alter column id set default nextval('{}_own')")
    box.commit("fine")
    assert values(box.changes()) == ["fine"]
    box.execute("alter sequence {}_own cache 10")
    with pytest.raises(OutboxUnfit, match=f"{box.table}_own"):
        box.source.head(LANE)
    write_out_of_order(box)
    init(box.dsn, Names(box.table))
    assert values(box.changes()) == ["fine", "other", "first", "second", "third"]
