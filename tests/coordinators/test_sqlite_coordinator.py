"""What is special about the embedded coordinator."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from deadline import PATIENCE, until
from penstock.change import Change, Lane, Op
from penstock.coordinator import Tally, Term
from penstock.coordinators import claim
from penstock.coordinators.letter_table import LetterTable
from penstock.coordinators.sqlite import candidate, store
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import DeliveryExhausted, StateInvalid, StateUnavailable, TermLost
from penstock.poison.condemned import Circumstances
from penstock.poison.policy import Poison

LANE = Lane("main")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(path: Path, clock: Clock) -> SqliteCoordinator:
    return SqliteCoordinator(str(path), ttl=10.0, clock=clock)


@pytest.fixture
def leader(coordinator: SqliteCoordinator) -> Iterator[candidate.SqliteCandidate]:
    with closing(coordinator.candidate("p", "leader")) as made:
        yield made


@pytest.fixture
def rival(coordinator: SqliteCoordinator) -> Iterator[candidate.SqliteCandidate]:
    with closing(coordinator.candidate("p", "rival")) as made:
        yield made


def mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position, position)


def taken(coordinator: SqliteCoordinator, leader: candidate.SqliteCandidate) -> Term:
    term = leader.campaign()
    assert term
    coordinator.place(term, {LANE: mark(0)})
    return term


def edit(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def test_asking_creates_no_file(coordinator: SqliteCoordinator, path: Path) -> None:
    coordinator.pipeline_state("p")
    coordinator.watermark("p", LANE)
    assert not path.exists()


def test_many_create_the_same_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", PATIENCE)
    crowd = 8
    for round_ in range(10):
        together = threading.Barrier(crowd)

        def stand(path: str = str(tmp_path / f"{round_}.db"), together: threading.Barrier = together) -> bool:
            together.wait()
            with closing(SqliteCoordinator(path).candidate("p", "a")) as one:
                return one.campaign() is not None

        with ThreadPoolExecutor(crowd) as pool:
            stood = [pool.submit(stand) for _ in range(crowd)]
            assert 0 < sum(one.result() for one in stood) <= crowd


def test_a_file_that_another_process_makes_during_the_look_was_not_cut_short(path: Path) -> None:
    class Raced(type(path)):
        def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
            try:
                return super().stat(follow_symlinks=follow_symlinks)
            finally:
                maker.execute("pragma journal_mode = wal")
                maker.execute("create table if not exists terms (x)")

    path.touch()
    with closing(sqlite3.connect(path, isolation_level=None)) as maker:
        assert store.is_new(Raced(path))
        assert path.with_name(path.name + "-wal").exists()
        assert not store.is_new(path)
        os.truncate(path, 0)
        with pytest.raises(StateInvalid, match="truncated"):
            store.is_new(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"name: orders\n" * 100, "cannot be read as a state file"), (b"SQLite format 3\0" + b"\xff" * 5000, "cannot be")],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StateInvalid, match=said):
        SqliteCoordinator(str(path)).candidate("p", "a")
    with pytest.raises(StateInvalid, match=said):
        SqliteCoordinator(str(path)).pipeline_state("p")
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused_and_left_alone(path: Path) -> None:
    edit(path, "create table orders (id integer primary key)")
    before = path.read_bytes()
    with pytest.raises(StateInvalid, match="no state file"):
        SqliteCoordinator(str(path)).candidate("p", "a")
    assert path.read_bytes() == before


def test_a_state_file_of_a_later_version_is_refused(coordinator: SqliteCoordinator, path: Path) -> None:
    coordinator.candidate("p", "a").close()
    edit(path, f"pragma user_version = {store.VERSION + 1}")
    with pytest.raises(StateInvalid, match=f"version {store.VERSION + 1}"):
        coordinator.pipeline_state("p")


def take_back_facts(path: Path) -> None:
    """Give the dead letters the columns of version 5."""
    for change in ("drop column facts", "drop column headers", "drop column schema_version"):
        edit(path, f"alter table dead_letters {change}")
    for column in ("old_row_id", "new_row_id"):
        edit(path, f"alter table dead_letters add column {column} integer")


def test_a_letter_of_an_earlier_version_is_read(coordinator: SqliteCoordinator, path: Path) -> None:
    with closing(coordinator.candidate("p", "a")) as first:
        first.campaign()
    take_back_facts(path)
    columns = "pipeline, incarnation, lane, position, ordinal, table_name, key, op, before, after, at, old_row_id, new_row_id"
    why = "stage, code, message, tries, epoch, behind, holds, parked_at"
    for position, ids in enumerate([(1, 2), (None, 2), (None, None)], 1):
        change = ("p", "cafe", "main", position, 0, "t", '{"id":1}', "update", "{}", '{"n":1}', 5, *ids)
        values = (*change, "sink", "c", "m", 1, 1, 0, 1, "2026-01-01T00:00:00+00:00")
        edit(path, f"insert into dead_letters ({columns}, {why}) values ({', '.join('?' * len(values))})", *values)
    edit(path, "pragma user_version = 5")
    found = [letter.change for letter in coordinator.letters("p")]
    assert found == [
        Change(position, Op.UPDATE, "t", '{"id":1}', "{}", '{"n":1}', 5, facts)
        for position, facts in enumerate(['{"new_row_id":2,"old_row_id":1}', '{"new_row_id":2}', None], 1)
    ]
    assert {(change.headers, change.schema) for change in found} == {((), None)}


@pytest.mark.parametrize("version", store.UPGRADES)
def test_a_state_file_of_an_earlier_version_is_upgraded_and_keeps_what_it_knows(
    coordinator: SqliteCoordinator, path: Path, version: int
) -> None:
    with closing(coordinator.candidate("p", "a")) as first:
        term = first.campaign()
        assert term
        coordinator.place(term, {Lane("main"): Watermark(Cursor("c7"), 7, 7)})
    for table in ("dead_letters", "dead_rows", "dead_counts") if version == 1 else ():
        edit(path, f"drop table {table}")
    if version > 1:
        take_back_facts(path)
    if version < 5:
        edit(path, "drop table about")
    if version < 4:
        edit(path, "alter table terms drop column ttl")
    if version < 3:
        edit(path, "alter table watermarks drop column trouble")
    if version == 2:
        edit(path, "alter table dead_letters drop column overtaken_by")
    edit(path, f"pragma user_version = {version}")
    assert coordinator.letters("p") == []
    assert coordinator.pipeline_state("p").watermarks == {Lane("main"): Watermark(Cursor("c7"), 7, 7)}
    identity = coordinator.identity()
    assert identity
    with closing(coordinator.candidate("p", "b")) as second:
        assert second.campaign() == Term("p", "b", 2)
    assert coordinator.identity() == identity


def test_a_copy_of_a_state_file_has_its_identity(coordinator: SqliteCoordinator, path: Path) -> None:
    """A state that is moved, or restored from a backup, is still the owner of its registrations."""
    coordinator.candidate("p", "a").close()
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(copy)) as there:
        here.backup(there)
    assert SqliteCoordinator(str(copy)).identity() == coordinator.identity()


def test_a_torn_state_file_is_invalid(coordinator: SqliteCoordinator, path: Path) -> None:
    coordinator.candidate("p", "a").close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 20000)
    with pytest.raises(StateInvalid):
        coordinator.pipeline_state("p")


def test_a_folder_that_does_not_exist_is_an_unavailable_state(tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable, match="unable to open"):
        SqliteCoordinator(str(tmp_path / "none" / "state.db")).candidate("p", "a")


def test_a_claim_creates_no_file(coordinator: SqliteCoordinator, path: Path) -> None:
    with pytest.raises(StateUnavailable), coordinator.claim(Term("p", "a", 1), LANE, 0):
        pass
    assert not path.exists()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_locked_state_is_unavailable_and_the_term_outlives_it(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate
) -> None:
    term = taken(coordinator, leader)
    with coordinator.claim(term, LANE, 0) as held, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StateUnavailable, match="locked"):
            leader.renew()
        with pytest.raises(StateUnavailable, match="locked"):
            held.advance(mark(1), Tally(1, 1.0))
        other.execute("rollback")
        leader.renew()
        held.advance(mark(1), Tally(1, 1.0))
    assert coordinator.pipeline_state("p").delivered == 1


@pytest.mark.usefixtures("impatient")
def test_a_holder_that_cannot_renew_stops_trusting_itself_before_others_call_it_silent(
    coordinator: SqliteCoordinator, path: Path, clock: Clock, leader: candidate.SqliteCandidate, rival: candidate.SqliteCandidate
) -> None:
    leader.campaign()
    assert rival.campaign() is None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        clock.now += 8.9
        with pytest.raises(StateUnavailable):
            leader.renew()
        clock.now += 0.2
        with pytest.raises(TermLost, match="could not be written"):
            leader.renew()
        other.execute("rollback")
    assert rival.campaign() is None
    clock.now += 0.9
    assert rival.campaign() == Term("p", "rival", 2)


def test_a_full_disk_is_an_unavailable_state(coordinator: SqliteCoordinator, path: Path) -> None:
    coordinator.candidate("p", "a").close()
    script = """
import resource, signal, sys
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
candidate = SqliteCoordinator(sys.argv[1]).candidate("p", "b")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
candidate.campaign()
"""
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "[state.unavailable]" in ended.stderr.splitlines()[-1]


def test_a_silent_holder_is_judged_by_the_observers_clock_and_no_other(
    path: Path, clock: Clock, leader: candidate.SqliteCandidate, rival: candidate.SqliteCandidate
) -> None:
    leader.campaign()
    for wall in (0.0, 4e9):
        edit(path, "update terms set beat_at = ?", wall)
        assert rival.campaign() is None
    clock.now += 9.9
    assert rival.campaign() is None
    leader.renew()
    clock.now += 9.9
    assert rival.campaign() is None
    clock.now += 10
    assert rival.campaign() == Term("p", "rival", 2)


def test_a_beat_between_look_and_grasp_keeps_the_term(
    clock: Clock, leader: candidate.SqliteCandidate, rival: candidate.SqliteCandidate
) -> None:
    leader.campaign()
    rival.campaign()
    clock.now += 10

    def renewing() -> float:
        leader.renew()
        return clock.now

    rival._clock = renewing  # the clock is read after the look and before the grasp
    assert rival.campaign() is None
    leader.renew()


def test_a_holder_on_another_machine_is_judged_by_its_beats(
    coordinator: SqliteCoordinator, path: Path, clock: Clock, leader: candidate.SqliteCandidate, rival: candidate.SqliteCandidate
) -> None:
    leader.campaign()
    edit(path, "update terms set seat = 'elsewhere/boot/1'")
    assert coordinator.pipeline_state("p").is_held
    assert rival.campaign() is None
    edit(path, "update terms set beat_at = 0")
    assert not coordinator.pipeline_state("p").is_held
    assert rival.campaign() is None
    clock.now += 10
    assert rival.campaign() == Term("p", "rival", 2)


def test_all_names_of_a_file_lead_to_the_same_locks(tmp_path: Path, path: Path, leader: candidate.SqliteCandidate) -> None:
    leader.campaign()
    (tmp_path / "link").symlink_to(path)
    with closing(SqliteCoordinator(str(tmp_path / "link")).candidate("p", "rival")) as rival:
        assert rival.campaign() is None


def test_progress_with_counts_does_not_stand_if_the_file_is_removed_until_it_is_committed(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate
) -> None:
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        remove = lambda sql: path.unlink() if sql.lower() == "commit" else None  # noqa: E731
        held._store._connection.set_trace_callback(remove)
        with pytest.raises(TermLost):
            held.advance(mark(1), Tally(dropped=1))


def test_who_leads_in_a_file_that_was_replaced_leads_no_longer(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate
) -> None:
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        held.advance(mark(1), Tally())
        for file in path.parent.glob("state.db*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        with pytest.raises(TermLost):
            held.advance(mark(1), Tally())
        with pytest.raises(TermLost, match="replaced"):
            leader.renew()
    assert leader.campaign()
    assert path.exists()
    assert coordinator.watermark("p", LANE) is None


def test_an_attempt_that_was_superseded_cannot_advance_even_if_its_lock_was_lost(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate
) -> None:
    term = taken(coordinator, leader)
    with coordinator.claim(term, LANE, 0) as old:
        shutil.rmtree(store.folder(path))
        with coordinator.claim(term, LANE, 1) as new:
            new.advance(mark(2), Tally(2, 1.0))
            for position in (0, 3):
                with pytest.raises(TermLost):
                    old.advance(mark(position), Tally(1, 1.0))
    assert coordinator.watermark("p", LANE) == mark(2)
    assert coordinator.pipeline_state("p").delivered == 2


def test_an_idle_lane_is_written_about_once_a_second_only(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "TOUCH", PATIENCE)
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held, closing(sqlite3.connect(path)) as other:
        held.advance(mark(1), Tally())
        version = other.execute("pragma data_version").fetchone()
        for _ in range(10):
            held.advance(mark(1), Tally())
        assert other.execute("pragma data_version").fetchone() == version
        monkeypatch.setattr(claim, "TOUCH", 0.0)
        # SQLite writes no page without a change, and an advance changes the time, in milliseconds.
        until(lambda: held.advance(mark(1), Tally()) or other.execute("pragma data_version").fetchone() != version)


def test_the_dead_leave_no_files(coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate) -> None:
    folder = store.folder(path)
    for name in ("seat.0123", "seat.4567"):
        (folder / name).touch()
    first = taken(coordinator, leader)
    with coordinator.claim(first, LANE, 0):
        kept = {file.name for file in folder.iterdir()}
    (folder / next(name for name in kept if name.startswith("lane."))).touch()
    second = leader.campaign()
    assert second
    with coordinator.claim(second, LANE, 0):
        assert len(list(folder.glob("lane.*"))) == 1
    assert len(list(folder.iterdir())) == 1


def opened_files(folder: Path) -> list[str]:
    """Those below a folder: others may be given back at any moment by what other tests have left behind."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [target for link in links if os.path.islink(link) and (target := os.readlink(link)).startswith(str(folder))]


def test_connections_and_files_are_given_back(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate
) -> None:
    term = taken(coordinator, leader)
    with coordinator.claim(term, LANE, 0):
        pass
    before = sorted(opened_files(path.parent))
    for attempt in range(1, 20):
        with coordinator.claim(term, LANE, attempt) as held:
            held.advance(mark(attempt), Tally())
        with pytest.raises(TermLost), coordinator.claim(term, LANE, 0):
            pass
        coordinator.pipeline_state("p")
        coordinator.candidate("p", "visitor").close()
    assert sorted(opened_files(path.parent)) == before


def test_a_watermark_that_was_asked_for_outlives_a_loss_of_power(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.readlink(f"/proc/self/fd/{file}")))
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        held.advance(mark(4), Tally())
        assert not flushed, "a worker does not wait for the disk"
        assert coordinator.watermark("p", LANE) == mark(4)
    assert flushed == [f"{path}-wal"]


def test_progress_and_what_it_counts_are_recorded_in_one_step(
    coordinator: SqliteCoordinator, leader: candidate.SqliteCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **counts: int) -> None:
        raise StateUnavailable("away")

    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        with monkeypatch.context() as broken:
            broken.setattr(LetterTable, "count", away)
            with pytest.raises(StateUnavailable):
                held.advance(mark(4), Tally(3, dropped=1, passed=2))
        assert coordinator.watermark("p", LANE) != mark(4)
        held.advance(mark(4), Tally(3, dropped=1, passed=2))
    standing = coordinator.pipeline_state("p")
    assert (standing.delivered, standing.dropped, standing.passed) == (3, 1, 2)


def test_a_letter_of_a_killed_predecessor_is_flushed_before_anything_passes_it(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    term, about = taken(coordinator, leader), Circumstances("p", LANE, "cafe", 1, lambda event: None)
    with coordinator.claim(term, LANE, 0) as held:
        predecessor = Poison("dead-letter", parking=held, about=about)
        predecessor.condemn(Change(5, Op.INSERT, "t", '{"id":1}'), DeliveryExhausted("no", "mend it"))
    with coordinator.claim(term, LANE, 1) as held:
        flushed: list[str] = []
        monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.readlink(f"/proc/self/fd/{file}")))
        Poison("dead-letter", parking=held, about=about).secure()
        assert flushed == [f"{path}-wal"]


def test_a_letter_outlives_a_loss_of_power_once_it_is_secured(
    coordinator: SqliteCoordinator, path: Path, leader: candidate.SqliteCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        flushed: list[str] = []
        monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.readlink(f"/proc/self/fd/{file}")))
        poison = Poison("dead-letter", parking=held, about=Circumstances("p", LANE, "cafe", 1, lambda event: None))
        poison.condemn(Change(5, Op.INSERT, "t", '{"id":1}'), DeliveryExhausted("no", "mend it"))
        assert not flushed, "a sink whose watermark is in the same file need not wait for the disk"
        poison.secure()
        poison.secure()
        assert flushed == [f"{path}-wal"]
        assert poison.sift([Change(6, Op.UPDATE, "t", '{"id":1}')]) == []
        poison.secure()
        assert flushed == [f"{path}-wal"] * 2
