"""Purging: only what every pipeline has delivered, in batches, in the order of positions; and the space comes back."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from boxes import Box

from deadline import PATIENCE, until
from facts import row_id
from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.errors import (
    ConfigInvalid,
    LogDamaged,
    OutboxMissing,
    OutboxUnfit,
    SourceOwned,
    SourcePruned,
    SourceRewound,
    SourceUnavailable,
)
from penstock.following import follow
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Span
from penstock.sources.outbox import follow as outbox_follow
from penstock.sources.outbox import settle
from penstock.sources.outbox.log import Life, Log, reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import Point, of_cursor
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import LANE, OutboxSource
from penstock.sources.retain import Registration, Retain


def at(box: Box, position: int) -> Cursor:
    return box.source.begin(LANE, str(position))


def left(box: Box) -> list[int]:
    return [change.position for change in box.changes(box.source.begin(LANE, "beginning"))]


def test_what_is_purged_is_gone_and_the_rest_keeps_its_positions(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "BATCH", 3)
    for n in range(4):
        box.commit(*(f"m{n}.{i}" for i in range(4)))
        box.source.head(LANE)
    changes = box.changes()
    assert box.source.retention.settle("p", LANE, at(box, 6)).pruned == 6
    assert box.changes(at(box, 6)) == changes[6:]
    assert left(box) == list(range(7, 17))
    assert box.source.retention.settle("p", LANE, at(box, 16)).pruned == 10
    assert box.execute("select count(*) from {}") == [(0,)]
    assert box.execute("select count(*) from {}_window") == [(1,)]  # behind which the next begins
    box.commit("next")
    assert left(box) == [17]


def test_a_window_whose_late_rows_have_the_lowest_ids_is_purged_in_the_order_of_positions(box: Box) -> None:
    late = box.writer()
    box.put(late, "late")
    box.commit("a", "b")
    box.source.head(LANE)
    late.commit()
    box.commit("c")
    changes = box.changes()
    assert [row_id(change) for change in changes] == [2, 3, 1, 4]
    assert box.source.retention.settle("p", LANE, at(box, 1)).pruned == 1
    assert box.source.retention.settle("p", LANE, at(box, 3)).pruned == 2
    assert box.changes(at(box, 3)) == changes[3:]


def test_nothing_goes_that_another_pipeline_needs_and_nothing_while_it_registers(box: Box) -> None:
    box.commit("a", "b", "c")
    end = box.source.head(LANE)
    box.source.retention.register("slow", LANE, at(box, 1))
    assert box.source.retention.settle("fast", LANE, end).pruned == 1
    registering = box.writer()
    registering.execute(f"select 1 from {box.table}_life for update".encode())
    box.source.retention.forget("slow")
    assert box.source.retention.settle("fast", LANE, end).pruned == 0
    registering.rollback()
    assert box.source.retention.settle("fast", LANE, end).pruned == 2
    with pytest.raises(SourcePruned):
        box.source.retention.register("late", LANE, box.start)


@pytest.mark.parametrize("purged", [3, 4])
def test_a_reader_starts_although_its_last_message_is_purged_meanwhile(
    purged: int, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge comes between the look at the outbox and the look at the message."""
    box.commit("a", "b", "c", "d")
    place = of_cursor(at(box, 3))
    assert place.checksum
    box.source.retention.register("p", LANE, at(box, 2))
    real = Log.life

    def then_purged(log: Log) -> Life:
        life = real(log)
        other = OutboxSource(database=f"{box.dsn}?application_name=other", table=box.table)
        monkeypatch.setattr(Log, "life", real)
        other.retention.settle("p", LANE, at(box, purged))
        return life

    with reading(box.dsn, Names(box.table)) as log:
        monkeypatch.setattr(Log, "life", then_purged)
        if purged == 3:
            assert log.confirm(place).pruned == 3
        else:
            with pytest.raises(SourcePruned, match="after 3"):
                log.confirm(place)


def test_a_place_is_named_although_its_message_is_purged_meanwhile(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.commit("a", "b", "c")
    end, real = box.source.head(LANE), Log.head

    def then_purged(log: Log) -> Point:
        head = real(log)
        monkeypatch.setattr(Log, "head", real)
        OutboxSource(database=f"{box.dsn}?application_name=other", table=box.table).retention.settle("p", LANE, end)
        return head

    with reading(box.dsn, Names(box.table)) as log:
        monkeypatch.setattr(Log, "head", then_purged)
        assert log.place(3) == Point(of_cursor(end).incarnation, 3)


A, B = Owner("a" * 16, "a.db", "here:1"), Owner("b" * 16, "b.db", "here:2")
WITHOUT_OWNERS = "alter table {}_reader drop column owner, drop column owner_state, drop column owner_process"


def test_one_that_loses_its_registration_while_it_settles_changes_nothing(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handover comes between its look and its note."""
    box.commit("a", "b", "c")
    box.source.retention.register("p", LANE, at(box, 1), A)
    real = settle._is_due

    def handed_over(*arguments: Registration) -> bool:
        OutboxSource(database=f"{box.dsn}?application_name=other", table=box.table).retention.forget("p", B)
        return real(*arguments)

    monkeypatch.setattr(settle, "_is_due", handed_over)
    with pytest.raises(SourceOwned):
        box.source.retention.settle("p", LANE, box.source.head(LANE), A)
    assert box.source.retention.registered("p", LANE) == 1
    assert box.execute("select count(*) from {}") == [(3,)]


def test_a_released_registration_goes_to_the_next_state_that_comes(box: Box) -> None:
    box.commit("a", "b")
    box.source.retention.register("p", LANE, at(box, 1), A)
    box.execute("update {}_reader set released_at = now()")
    box.source.retention.register("p", LANE, at(box, 2), B)
    with pytest.raises(SourceOwned):
        box.source.retention.settle("p", LANE, box.source.head(LANE), A)


def test_an_outbox_of_a_version_without_owners_is_read_and_gets_them_with_the_next_note(box: Box) -> None:
    box.commit("a")
    box.source.retention.register("p", LANE, at(box, 1))
    box.execute(WITHOUT_OWNERS)
    assert [one.owner for one in box.source.retention.readers()] == [None]
    box.source.retention.settle("p", LANE, at(box, 1), A)
    assert [one.owner for one in box.source.retention.readers()] == [A]


def test_a_role_that_may_not_add_them_is_told_how_they_are_added(box: Box) -> None:
    box.commit("a")
    box.execute(WITHOUT_OWNERS)
    box.execute("create role {} login password 'guest'")
    box.execute("grant select, insert, update, delete on {}, {}_window, {}_life, {}_reader to {}")
    guest = OutboxSource(database=f"postgresql://{box.table}:guest@{box.dsn.rpartition('@')[2]}", table=box.table)
    try:
        with pytest.raises(OutboxUnfit, match="may not alter it") as refused:
            guest.retention.register("p", LANE, box.start, A)
        assert f"penstock outbox init DSN --table {box.table}" in refused.value.remedy
        init(box.dsn, Names(box.table))
        guest.retention.register("p", LANE, box.start, A)
        assert [one.owner for one in guest.retention.readers()] == [A]
    finally:
        box.execute("drop owned by {}")
        box.execute("drop role {}")


def test_a_pipeline_that_was_not_waited_for_is_told(box: Box) -> None:
    box.commit("a", "b")
    span = Span(LANE, box.start, box.source.head(LANE))
    box.source.retention.settle("p", LANE, span.upto)
    for deed in (
        lambda: list(box.source.read(span, ANONYMOUS)),
        lambda: next(follow(box.source, LANE, span.after, ANONYMOUS)),
        lambda: box.source.retention.settle("q", LANE, span.after),
    ):
        with pytest.raises(SourcePruned):
            deed()


def test_history_is_kept_for_rewinding(box: Box) -> None:
    keeping = OutboxSource(database=box.dsn, table=box.table, retain=Retain(history=timedelta(hours=1)))
    box.commit("a", "b")
    assert keeping.retention.settle("p", LANE, keeping.head(LANE)).pruned == 0
    moment = datetime.now(UTC)
    box.commit("c")
    keeping.head(LANE)
    assert [change.position for change in box.changes(keeping.seek.since(LANE, moment))] == [3]
    box.execute("update {}_window set made_at = made_at - interval '2 hours' where after = 0")
    assert keeping.retention.settle("p", LANE, keeping.head(LANE)).pruned == 2
    with pytest.raises(ConfigInvalid, match="purged already"):
        keeping.seek.since(LANE, moment - timedelta(hours=3))


def test_what_somebody_else_deleted_is_noticed(box: Box) -> None:
    box.commit("a", "b", "c")
    span = Span(LANE, box.start, box.source.head(LANE))
    box.execute("delete from {} where id = 2")
    with pytest.raises(LogDamaged) as caught:
        list(box.source.read(span, ANONYMOUS))
    assert "--from 3" in caught.value.remedy
    assert box.changes(at(box, 3)) == []


def test_space_comes_back_under_load(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty thousand messages through a table that is swept after every two thousand stay a table for a few thousand."""
    monkeypatch.setattr(settle, "SWEEP", 2000)
    monkeypatch.setattr(settle, "_SWEEP_SECONDS", PATIENCE)
    box.execute("alter table {} set (autovacuum_enabled = off)")
    sizes = []
    for _ in range(30):
        box.execute("insert into {} (topic, key, value) select 't', 'k', repeat('x', 300)::bytea from generate_series(1, 2000)")
        assert box.source.retention.settle("p", LANE, box.source.head(LANE)).pruned == 2000
        [(size,)] = box.execute("select pg_relation_size('{}')")
        sizes.append(int(str(size)))
    assert max(sizes) <= 3 * sizes[0]
    assert int(str(box.execute("select pg_relation_size('{}_window')")[0][0])) < 100_000


def test_an_outbox_that_is_not_there_or_not_allowed_says_so(box: Box) -> None:
    with pytest.raises(OutboxMissing, match="no outbox nothing") as missing:
        OutboxSource(database=box.dsn, table="nothing").head(LANE)
    assert missing.value.remedy == "penstock outbox init DSN --table nothing"
    box.execute("create role {} login password 'guest'")
    address = box.dsn.rpartition("@")[2]
    with pytest.raises(OutboxUnfit, match="permission denied"):
        OutboxSource(database=f"postgresql://{box.table}:guest@{address}", table=box.table).head(LANE)
    with pytest.raises(SourceUnavailable) as refused:
        OutboxSource(database=f"postgresql://{box.table}:secret@{address}", table=box.table).head(LANE)
    assert "secret" not in str(refused.value)
    box.execute("drop role {}")


def test_no_password_shows_in_a_source() -> None:
    assert "s3cret" not in repr(OutboxSource(database="postgresql://app:s3cret@db/shop"))


def test_a_restored_dump_is_noticed_and_gone_on_with(box: Box) -> None:
    """Transaction ids of another cluster: those in the rows lie beyond what this one has given, or below what was delivered."""
    box.commit("delivered", "waiting")
    head = box.source.head(LANE)
    box.source.retention.register("p", LANE, at(box, 1))
    box.execute("update {}_life set system = 1")  # as a dump of another cluster says
    box.execute("update {} set xid = '1000000000000'")
    box.execute("update {}_window set upto = '1000000000000:1000000000000:' where rows > 0")
    box.commit("new")  # with a transaction id of this cluster, which lies below the last window
    for deed in (
        lambda: box.source.head(LANE),
        lambda: next(follow(box.source, LANE, head, ANONYMOUS)),
        lambda: box.source.retention.settle("p", LANE, head),
        lambda: box.source.backlog(LANE, head),
    ):
        with pytest.raises(SourceRewound, match="another cluster"):
            deed()
    box.source.seek.renew()
    start = box.source.begin(LANE, "beginning")
    assert box.source.incarnation(start) != box.source.incarnation(head)
    assert [change.position for change in box.changes(start)] == [3, 4, 5]
    with pytest.raises(SourceRewound):
        box.source.retention.settle("p", LANE, head)
    box.commit("later")
    assert box.source.position(box.source.head(LANE)) == 6


def test_a_row_of_another_cluster_is_not_left_lying(box: Box) -> None:
    box.commit("a")
    end = box.source.head(LANE)
    box.execute("insert into {} (topic, xid) values ('t', '1000000000000')")
    with pytest.raises(SourceRewound, match="another cluster"):
        next(follow(box.source, LANE, end, ANONYMOUS))


def test_an_older_state_of_the_same_cluster_is_noticed(box: Box) -> None:
    """As after a restored volume: the same life, other messages at the same positions."""
    box.commit("a", "b", "c")
    end = box.source.cursor_after(box.changes()[-1], box.start)
    box.execute("delete from {}_window where rows > 0")
    box.execute("delete from {}")
    with pytest.raises(SourceRewound, match="ends at 0"):
        next(follow(box.source, LANE, end, ANONYMOUS))
    box.commit("other", "messages", "instead")
    box.source.head(LANE)
    with pytest.raises(SourceRewound, match="it has another message at"):
        next(follow(box.source, LANE, end, ANONYMOUS))


def test_a_table_that_was_restored_alone_counts_as_new(box: Box) -> None:
    box.commit("a")
    box.execute("update {} set xid = '1000000000000'")
    for suffix in ("window", "life", "reader"):
        box.execute(f"drop table {{}}_{suffix}")
    assert init(box.dsn, Names(box.table))
    assert [change.position for change in box.changes(box.source.begin(LANE, "beginning"))] == [1]


def test_a_commit_wakes_a_reader_that_listens(postgres_of_module: str) -> None:
    init(postgres_of_module, Names("waking"), notify=True)
    with psycopg.connect(postgres_of_module, autocommit=True) as listener:
        listener.execute(b'listen "penstock_waking"')
        with psycopg.connect(postgres_of_module) as writer:
            writer.execute(b"insert into waking (topic) values ('t')")
        assert [note.channel for note in listener.notifies(timeout=PATIENCE, stop_after=1)] == ["penstock_waking"]
    source = OutboxSource(database=postgres_of_module, table="waking", notify=True)
    follower = follow(source, Lane("outbox"), source.begin(LANE, "beginning"), ANONYMOUS)
    assert next(follower).changes.num_rows == 1
    assert next(follower).changes.num_rows == 0
    follower.close()


def test_all_that_writers_have_said_meanwhile_is_one_reason_to_look(postgres_of_module: str) -> None:
    with (
        psycopg.connect(postgres_of_module, autocommit=True) as reader,
        psycopg.connect(postgres_of_module, autocommit=True) as writer,
    ):
        reader.execute(b"listen busy")
        for number in range(20):
            writer.execute(f"notify busy, '{number}'".encode())
        until(lambda: reader.execute(b"select 1") and len(reader._notifies_backlog) == 20)
        outbox_follow._wait(reader, 86_400.0, notify=True, gathers=False)
        began = time.monotonic()
        outbox_follow._wait(reader, 0.2, notify=True, gathers=False)
        assert time.monotonic() - began >= 0.2
        writer.execute(b"notify busy, 'more'")
        began = time.monotonic()
        outbox_follow._wait(reader, 0.1, notify=True, gathers=True)
        assert time.monotonic() - began >= 0.1
        assert not reader._notifies_backlog


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigInvalid) as caught:
        OutboxSource(database="postgresql://app@localhost/shop").head(LANE)
    assert caught.value.remedy == "pip install 'penstock[postgres]'"
