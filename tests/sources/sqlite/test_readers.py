"""Several pipelines on one log: who is waited for, for how long, and what becomes of those who are not."""

from __future__ import annotations

import math
import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from replay import connect
from test_capture_settle import at, fill, kept, quieten

from examples import examples
from penstock.errors import SourceOwned, SourcePruned
from penstock.following import follow
from penstock.owner import Owner
from penstock.source import ANONYMOUS, Settlement
from penstock.sources import retain
from penstock.sources.retain import GONE, Registration, Retain, is_overdue, kept_for, prunable_below
from penstock.sources.sqlite import settle
from penstock.sources.sqlite.settle import BEAT, STILL, STILL_BEAT, Ledger, is_due
from penstock.sources.sqlite.source import LANE, SqliteSource

RELEASE = Retain(changes=5, age=timedelta(days=7), then="release")


def source_of(path: Path, rule: Retain = RELEASE) -> SqliteSource:
    return SqliteSource(database=str(path), retain=rule)


def settled(path: Path, pipeline: str, position: int, rule: Retain = RELEASE) -> Settlement:
    quieten(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settle, "BUDGET", math.inf)
        return source_of(path, rule).retention.settle(pipeline, LANE, at(path, position))


def silence(writer: sqlite3.Connection, pipeline: str, days: float) -> None:
    """As if nobody had noted this pipeline for so long."""
    writer.execute("update _penstock_reader set noted_at = noted_at - ? where pipeline = ?", (days, pipeline))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is seen twice in the same place is gone."""
    monkeypatch.setattr(retain, "GONE", 0.0)


def states(path: Path) -> dict[str, tuple[int, bool, bool]]:
    return {one.pipeline: (one.position, one.is_gone, one.is_released) for one in source_of(path).retention.readers()}


@pytest.mark.usefixtures("at_once")
def test_a_reader_that_is_gone_and_too_far_behind_is_released_and_the_log_pruned(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "gone", 3)
    done = settled(path, "orders", 10)
    assert [(one.pipeline, one.position) for one in done.released] == [("gone", 3)]
    assert done.pruned == 7
    assert kept(writer) == (10, 10)
    assert states(path)["gone"] == (3, True, True)


@pytest.mark.usefixtures("at_once")
def test_one_that_is_silent_for_too_long_is_released_however_near_it_is(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 4)
    settled(path, "gone", 3)
    silence(writer, "gone", days=6.9)
    assert not settled(path, "orders", 4).released
    silence(writer, "gone", days=0.2)
    assert [one.pipeline for one in settled(path, "orders", 4).released] == ["gone"]


@pytest.mark.usefixtures("at_once")
def test_by_default_it_is_kept_and_said(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "gone", 3)
    done = settled(path, "orders", 10, Retain(changes=5))
    assert [(one.pipeline, one.position, one.kept) for one in done.overdue] == [("gone", 3, 7)]
    assert not done.released
    assert kept(writer) == (3, 10)


def test_nobody_is_released_whose_note_was_not_seen_to_stand_still_for_long(writer: sqlite3.Connection, path: Path) -> None:
    """Whatever the wall clock says: it may have stepped, and machines sleep."""
    fill(writer, 10)
    settled(path, "other", 3)
    silence(writer, "other", days=100)
    for _ in range(3):
        assert not settled(path, "orders", 10).released
    assert kept(writer) == (3, 10)


@pytest.mark.usefixtures("at_once")
def test_a_released_reader_whose_changes_are_gone_is_told_so_and_never_goes_on(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "gone", 3)
    watermark = at(path, 3)
    settled(path, "orders", 10)
    source = source_of(path)
    with pytest.raises(SourcePruned, match=r"begins at change 10; .* gone was released after it was gone for too long"):
        source.retention.settle("gone", LANE, watermark)
    for deed in (lambda: next(follow(source, LANE, watermark, ANONYMOUS)), lambda: source.backlog(LANE, watermark)):
        with pytest.raises(SourcePruned, match="changes after 3 are pruned"):
            deed()
    assert states(path)["gone"][2]


@pytest.mark.usefixtures("at_once")
def test_one_that_was_at_the_beginning_is_told_so_too(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    source = source_of(path)
    beginning = source.begin(LANE, "beginning")
    source.retention.register("gone", LANE, beginning)
    settled(path, "orders", 10)
    with pytest.raises(SourcePruned):
        next(follow(source, LANE, beginning, ANONYMOUS))


@pytest.mark.usefixtures("at_once")
def test_a_released_reader_for_whom_everything_is_still_there_just_goes_on(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "gone", 3)
    writer.execute("update _penstock_reader set released_at = 1 where pipeline = 'gone'")
    settled(path, "gone", 4)
    assert not states(path)["gone"][2]
    settled(path, "orders", 10, Retain())
    assert kept(writer) == (4, 10)


@pytest.mark.usefixtures("at_once")
def test_one_that_comes_back_just_before_its_release_is_not_released(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 10)
    settled(path, "other", 3)
    real, came_back = settle._write, []

    def interrupted(*arguments: object) -> Settlement:
        source_of(path).retention.register("other", LANE, at(path, 4))
        came_back.append(True)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settle, "_write", interrupted)
    assert not settled(path, "orders", 10).released
    assert came_back
    assert kept(writer) == (4, 10)


def test_a_reader_that_registers_while_others_prune_holds_what_is_left(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 2_000)
    settled(path, "orders", 1)
    late = iter([True])

    def register_late(seconds: float) -> None:
        if next(late, False):
            source_of(path).retention.register("late", LANE, at(path, 600))

    monkeypatch.setattr(settle, "time", SimpleNamespace(sleep=register_late, monotonic=time.monotonic, time=time.time))
    settled(path, "orders", 2_000)
    assert kept(writer)[0] == 600


def test_registering_also_goes_back_at_once_whoever_writes(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "other", 3)
    settled(path, "orders", 8)
    source = source_of(path)
    source.retention.register("orders", LANE, at(path, 4))
    assert source.retention.registered("orders", LANE) == 4
    settled(path, "other", 10)
    assert kept(writer) == (4, 10)


def test_what_is_gone_cannot_be_registered(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    early = at(path, 2)
    settled(path, "orders", 8)
    with pytest.raises(SourcePruned):
        source_of(path).retention.register("orders", LANE, early)


def test_what_is_pruned_while_it_is_registered_is_refused_and_leaves_no_note(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 10)
    settled(path, "orders", 2)
    real = settle._confirmed

    def pruned_behind(*arguments: object) -> object:
        seen = real(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(settle, "_confirmed", real)
        settled(path, "orders", 9)
        return seen

    early = at(path, 4)
    monkeypatch.setattr(settle, "_confirmed", pruned_behind)
    with pytest.raises(SourcePruned, match="were just pruned"):
        source_of(path).retention.register("late", LANE, early)
    assert list(states(path)) == ["orders"]


A, B = Owner("a" * 16, "a.db", "here:1"), Owner("b" * 16, "b.db", "here:2")


def test_one_that_loses_its_registration_while_it_settles_changes_nothing(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handover comes between its look and its transaction."""
    fill(writer, 10)
    source = source_of(path)
    source.retention.register("orders", LANE, at(path, 3), A)
    real = settle._write

    def handed_over(*arguments: object) -> Settlement:
        source.retention.forget("orders", B)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(settle, "_write", handed_over)
    quieten(path)
    with pytest.raises(SourceOwned):
        source.retention.settle("orders", LANE, at(path, 10), A)
    assert kept(writer) == (1, 10)
    assert source.retention.registered("orders", LANE) == 3
    assert [one.owner for one in source.retention.readers()] == [B]


def test_a_released_registration_goes_to_the_next_state_that_comes(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    source = source_of(path)
    source.retention.register("orders", LANE, at(path, 3), A)
    writer.execute("update _penstock_reader set released_at = 1")
    source.retention.register("orders", LANE, at(path, 5), B)
    with pytest.raises(SourceOwned):
        source.retention.settle("orders", LANE, at(path, 10), A)


def test_a_registration_of_a_version_without_owners_gets_one_with_the_next_note(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    source = source_of(path)
    source.retention.register("orders", LANE, at(path, 3))
    assert [one.owner for one in source.retention.readers()] == [None]
    source.retention.settle("orders", LANE, at(path, 3), A)
    assert [one.owner for one in source.retention.readers()] == [A]


def test_a_registration_that_an_earlier_version_made_anew_has_no_owner(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    source = source_of(path)
    source.retention.register("orders", LANE, at(path, 3), A)
    [row] = writer.execute("select * from _penstock_reader").fetchall()
    writer.execute("delete from _penstock_reader")
    writer.execute("insert into _penstock_reader values(?, ?, ?, ?, julianday('now') + 0.001, julianday('now'), null)", row[:4])
    assert [one.owner for one in source.retention.readers()] == [None]
    source.retention.register("orders", LANE, at(path, 5), B)
    assert [one.owner for one in source.retention.readers()] == [B]


def test_the_first_registration_leaves_a_snapshot_readable(writer: sqlite3.Connection, path: Path) -> None:
    """Rows of a table without a primary key are read only as long as the schema stays as it was."""
    fill(writer, 10)
    before = writer.execute("pragma schema_version").fetchone()
    source_of(path).retention.register("orders", LANE, at(path, 3), A)
    source_of(path).retention.forget("orders")
    assert writer.execute("pragma schema_version").fetchone() == before


def test_forgetting_frees_the_log(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    settled(path, "slow", 3)
    settled(path, "orders", 10)
    assert kept(writer) == (3, 10)
    source = source_of(path)
    assert source.retention.forget("slow")
    assert not source.retention.forget("slow")
    assert source.retention.registered("slow", LANE) is None
    settled(path, "orders", 10)
    assert kept(writer) == (10, 10)


def test_recent_history_stays_for_whoever_asks_for_it(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 1_500)
    writer.execute("update _penstock_log set at = at - 2 where seq <= 1000")
    settled(path, "wants a day", 1_500, Retain(history=timedelta(days=1)))
    assert kept(writer) == (1_001, 1_500)
    settled(path, "wants nothing", 1_500, Retain())
    assert kept(writer) == (1_001, 1_500)
    source_of(path).retention.forget("wants a day")
    settled(path, "wants nothing", 1_500, Retain())
    assert kept(writer) == (1_500, 1_500)


def test_history_goes_in_batches(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 500)
    writer.execute("update _penstock_log set at = at - 2 where seq < 400")
    rule = Retain(history=timedelta(days=1))
    assert not settled(path, "orders", 500, rule).pruned
    fill(writer, 200)
    writer.execute("update _penstock_log set at = at - 2 where seq <= 600")
    assert settled(path, "orders", 700, rule).pruned == 600


def test_an_idle_pipeline_says_now_and_then_that_it_lives(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "STILL_BEAT", 20 * 86400.0)  # days, so that the time that the test takes is nothing
    monkeypatch.setattr(settle, "BEAT", math.inf)
    fill(writer, 1)
    settled(path, "orders", 1)
    silence(writer, "orders", days=10)
    settled(path, "orders", 1)
    [before] = source_of(path).retention.readers()
    assert before.silent >= 10 * 86400
    silence(writer, "orders", days=10)
    settled(path, "orders", 1)
    [after] = source_of(path).retention.readers()
    assert after.silent < 10 * 86400


def test_it_says_so_less_often_while_somebody_writes(writer: sqlite3.Connection, path: Path) -> None:
    ledger = Ledger(noted=1, upto=1, first=1, lowest=1, silent=STILL_BEAT)
    assert not is_due(ledger, 0.0)
    assert is_due(ledger, STILL)
    assert is_due(Ledger(noted=1, upto=1, first=1, lowest=1, silent=BEAT), 0.0)
    assert 3 * BEAT <= GONE


positions = st.integers(0, 1_000)
registrations = st.builds(
    Registration,
    pipeline=st.sampled_from("abcde"),
    lane=st.just("log"),
    position=positions,
    noted_at=st.just(0.0),
    silent=st.floats(0, 10 * 86400),
    is_released=st.booleans(),
)
rules = st.builds(Retain, changes=st.integers(1, 1_000), age=st.timedeltas(timedelta(seconds=1), timedelta(days=9)))


@given(needed=st.lists(positions, min_size=1), first=positions, recent=st.none() | positions, batch=st.integers(1, 100))
def test_nothing_is_prunable_that_anybody_needs(needed: list[int], first: int, recent: int | None, batch: int) -> None:
    below = prunable_below(needed, first, recent, batch)
    assert below <= max(first, min(needed))
    assert all(below <= position for position in needed) or below == first
    if recent is not None:
        assert below <= max(first, recent)
    if recent is None:
        assert below == min(needed)


@given(one=registrations, head=positions, watched=st.floats(0, 2 * GONE), rule=rules)
def test_overdue_is_who_is_gone_and_beyond_a_bound(one: Registration, head: int, watched: float, rule: Retain) -> None:
    is_beyond = head - one.position > rule.changes or one.silent >= rule.age.total_seconds()
    assert is_overdue(one, head, watched, rule) == (watched >= GONE and is_beyond and not one.is_released)


@given(known=st.lists(registrations, unique_by=lambda one: one.pipeline, min_size=1), head=st.integers(1_000, 2_000))
def test_what_is_kept_for_one_alone_no_living_reader_needs(known: list[Registration], head: int) -> None:
    one, *others = known
    alone = kept_for(one, known, head)
    living = [other.position for other in others if not other.is_gone and not other.is_released]
    assert 0 <= alone <= max(0, head - one.position)
    assert all(one.position + alone <= position or alone == 0 for position in living)


@given(silent=st.floats(0, 1_000), still=st.floats(0, 10), stained=st.booleans())
def test_a_living_pipeline_is_noted_long_before_it_counts_as_gone(silent: float, still: float, stained: bool) -> None:
    due = is_due(Ledger(5, 5, 5, 5, silent, stained), still)
    assert due == (silent >= BEAT or (still >= STILL and (stained or silent >= STILL_BEAT)))


def test_a_forgetful_writers_number_is_cleared_only_when_that_disturbs_nobody(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 2)
    settled(path, "orders", 2)
    writer.execute("insert into _penstock_tx(number) values(1)")
    with monkeypatch.context() as patched:
        patched.setattr(settle, "STILL", math.inf)  # so that this moment is no pause yet, however long it takes
        source_of(path).retention.settle("orders", LANE, at(path, 2))
    assert writer.execute("select count(*) from _penstock_tx").fetchone() == (1,)
    settled(path, "orders", 2)
    assert writer.execute("select count(*) from _penstock_tx").fetchone() == (0,)


def test_a_database_that_is_written_without_pause_is_noted_within_the_beat(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 2)
    settled(path, "orders", 2)
    silence(writer, "orders", days=BEAT / 86400)
    with_wal_just_written = connect(path)
    with_wal_just_written.execute("insert into orders(total) values(1)")
    with_wal_just_written.close()
    began = time.monotonic()
    source_of(path).retention.settle("orders", LANE, at(path, 2))
    [found] = source_of(path).retention.readers()
    assert found.silent <= time.monotonic() - began + 1


steps = st.lists(
    st.tuples(st.sampled_from(["write", "advance", "back", "forget", "leave"]), st.sampled_from("abc"), st.integers(0, 6)),
    min_size=5,
    max_size=40,
)


@hypothesis_settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, then=st.sampled_from(["keep", "release"]))
@pytest.mark.usefixtures("at_once")
def test_whatever_readers_do_the_log_holds_all_that_any_of_them_still_needs(
    writer: sqlite3.Connection, path: Path, steps: list[tuple[str, str, int]], then: Literal["keep", "release"]
) -> None:
    """Each of three readers advances, goes back as far as the log reaches, leaves for good or is forgotten, in any order."""
    rule, absent = Retain(changes=5, then=then), set[str]()
    source = source_of(path, rule)
    for name in "abc":
        source.retention.forget(name)
    for deed, name, number in steps:
        known = {one.pipeline: one for one in source.retention.readers()}
        first, head = kept(writer) if known or writer.execute("select 1 from _penstock_log").fetchone() else (1, 0)
        stands = known[name].position if name in known and not known[name].is_released else None
        if deed == "write":
            fill(writer, number + 1)
        elif deed == "forget":
            source.retention.forget(name)
            absent.discard(name)
        elif deed == "leave":
            absent.add(name)
        elif head and name not in absent:
            goal = min(head, (stands or first) + number) if deed == "advance" else max(first, (stands or head) - number)
            (source.retention.register if deed == "back" or stands is None else source.retention.settle)(name, LANE, at(path, goal))
        quieten(path)
        for one in source.retention.readers():
            if not one.is_released:
                assert kept(writer)[0] <= one.position, (deed, name, number)
        assert then == "release" or not any(one.is_released for one in source.retention.readers())
