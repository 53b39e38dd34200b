"""A state file that loses its content, or its room, while processes have it open."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deadline import PATIENCE, until
from penstock.change import Lane
from penstock.coordinator import Tally
from penstock.coordinators.sqlite.candidate import SqliteCandidate
from penstock.coordinators.sqlite.condition import Condition
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateInvalid, StateUnavailable
from penstock.event import Event, Halted, Led, StandingBy
from penstock.pipeline import Pipeline
from penstock.running.pipeline_run import PipelineRun
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.synthetic import SyntheticSource

LANE = Lane("main")
Ruin = Callable[[Path], None]


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position, position)


def cut(*ends: str, to: int = 0) -> Ruin:
    def done(path: Path) -> None:
        for end in ends:
            with suppress(FileNotFoundError):  # SQLite removes the journal of an empty file that it opens
                os.truncate(f"{path}{end}", to)

    return done


def garbage(*ends: str) -> Ruin:
    def done(path: Path) -> None:
        for end in ends:
            with open(f"{path}{end}", "r+b") as file:
                file.write(b"\xa5" * os.path.getsize(file.name))

    return done


def another_database(path: Path) -> None:
    with closing(sqlite3.connect(f"{path}.other")) as other, other:
        other.execute("create table orders (id)")
    path.write_bytes(Path(f"{path}.other").read_bytes())


RUINS: dict[str, tuple[Ruin, bool]] = {
    "file cut": (cut(""), False),
    "journal cut": (cut("-wal"), False),
    "both cut": (cut("", "-wal"), False),
    "garbage in the file": (garbage(""), False),
    "garbage in the journal": (garbage("-wal"), False),
    "garbage in both": (garbage("", "-wal"), False),
    "whole file cut": (cut(""), True),
    "whole file and journal cut": (cut("", "-wal"), True),
    "whole file cut to half": (cut("", to=16384), True),
    "garbage in the whole file": (garbage(""), True),
    "whole file overwritten": (another_database, True),
}
"""And whether the file has all pages by then; otherwise the journal has most of them."""


@contextmanager
def at_work(path: Path, *, is_whole: bool) -> Iterator[tuple[SqliteCoordinator, SqliteCandidate, SqliteCandidate, Any, Clock]]:
    """A leader that carries a lane, and a standby."""
    clock = Clock()
    state = SqliteCoordinator(str(path), ttl=10.0, clock=clock)
    with closing(state.candidate("p", "leader")) as leader, closing(state.candidate("p", "rival")) as rival:
        term = leader.campaign()
        assert term
        state.place(term, {LANE: mark(0)})
        assert rival.campaign() is None
        with state.claim(term, LANE, 0) as claim:
            claim.advance(mark(1), Tally(1, 1.0))
            if is_whole:
                with closing(sqlite3.connect(path)) as other:
                    other.execute("pragma wal_checkpoint(truncate)")
            leader.renew()
            clock.now += 2
            assert rival.campaign() is None
            claim.advance(mark(2), Tally(1, 1.0))
            yield state, leader, rival, claim, clock


@pytest.mark.parametrize("ruin", RUINS)
def test_a_leader_learns_at_its_next_renewal_that_the_state_is_ruined_and_a_standby_within_a_fifth_of_a_term(
    path: Path, ruin: str
) -> None:
    ruined, is_whole = RUINS[ruin]
    for of_leader in (True, False):
        folder = path.parent / str(of_leader)
        folder.mkdir()
        with at_work(folder / "state.db", is_whole=is_whole) as (_, leader, rival, _, clock):
            ruined(folder / "state.db")
            clock.now += 2
            with pytest.raises(StateInvalid):
                leader.renew() if of_leader else rival.campaign()


@pytest.mark.parametrize("ruin", [name for name in RUINS if name != "garbage in the file"])
def test_who_opens_a_ruined_state_is_refused_and_repairs_nothing(path: Path, ruin: str) -> None:
    """Where the journal has all pages, SQLite needs the file for none of them."""
    ruined, is_whole = RUINS[ruin]
    with at_work(path, is_whole=is_whole) as (state, *_):
        ruined(path)
        size = path.stat().st_size
        for _ in range(2):
            with pytest.raises(StateInvalid):
                state.pipeline_state("p")
        if not size:
            with pytest.raises(StateInvalid, match="is empty"):
                state.candidate("p", "late")
        assert path.stat().st_size == size


def test_an_empty_file_that_was_never_a_state_is_a_new_one(path: Path) -> None:
    path.touch()
    state = SqliteCoordinator(str(path))
    assert state.pipeline_state("p").epoch == 0
    assert not path.stat().st_size
    with closing(state.candidate("p", "a")) as candidate:
        assert candidate.campaign()


def test_a_file_that_a_person_has_made_smaller_without_loss_is_no_ruin(path: Path) -> None:
    with at_work(path, is_whole=True) as (_, leader, *_):
        with closing(sqlite3.connect(path)) as other:
            other.execute("create table room as select zeroblob(1000000) as big")
            other.execute("pragma wal_checkpoint(truncate)")
            leader.renew()
            other.execute("drop table room")
            other.execute("vacuum")
            other.execute("pragma wal_checkpoint(truncate)")
        leader.renew()


def test_a_state_that_is_written_and_checkpointed_meanwhile_is_never_called_ruined(path: Path) -> None:
    """Also one that grows: a checkpoint writes the first page, with the new size, before the others."""
    done = threading.Event()

    def writing() -> None:
        with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as other:
            other.execute("create table growing (some blob)")
            while not done.is_set():
                other.execute("insert into growing values (zeroblob(200000))")
                other.execute("pragma wal_checkpoint(truncate)")
                other.execute("delete from growing where rowid % 20 = 0")

    with at_work(path, is_whole=True):
        writer, condition = threading.Thread(target=writing), Condition(path)
        writer.start()
        try:
            for _ in range(400):
                condition.examine()
        finally:
            done.set()
            writer.join()


def test_to_look_at_the_file_gives_up_no_lock_of_sqlite(path: Path) -> None:
    """A process that closes any descriptor of a file gives up its POSIX locks on it: then the next to leave removes the journal."""
    leaves = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select * from terms').fetchall(); c.close()"
    with at_work(path, is_whole=False) as (_, leader, *_):
        leader.renew()
        before = os.stat(f"{path}-wal").st_ino
        subprocess.run([sys.executable, "-c", leaves, str(path)], check=True)
        assert os.stat(f"{path}-wal").st_ino == before
        leader.renew()


class Prompt(SqliteCoordinator):
    """Its terms are renewed often."""

    renewal = 0.1


class Quiet:
    """A query with nothing to do, and the engine that makes it."""

    def query(self, pipeline: Pipeline, *_: object) -> Quiet:
        return self

    def start(self, term: object) -> None:
        return None

    prepare = warm = start

    def stop(self) -> None:
        return None

    lost = failure = has_ended = was_stopped_inside = ask_to_stop = stop


@contextmanager
def carried(state: SqliteCoordinator, told: list[Event]) -> Iterator[PipelineRun]:
    """A process that carries a pipeline, without Spark."""
    stop = threading.Event()
    run = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, stop, told.append)
    with run.entered(), ExitStack() as ended:
        thread = threading.Thread(target=run.run, args=(Quiet(),))
        thread.start()
        ended.callback(thread.join)
        ended.callback(stop.set)
        yield run


@pytest.mark.parametrize("ruin", ["file cut", "both cut", "garbage in the file", "garbage in both"])
@pytest.mark.parametrize("role", [Led, StandingBy])
def test_a_process_whose_state_is_ruined_halts_with_the_code_whether_it_leads_or_stands_by(
    path: Path, ruin: str, role: type[Event]
) -> None:
    state, told = Prompt(str(path), ttl=PATIENCE if role is Led else 5.0), list[Event]()
    with closing(Prompt(str(path), ttl=PATIENCE).candidate("p", "other")) as other:
        assert role is Led or other.campaign()
        with carried(state, told) as run:
            until(lambda: any(isinstance(event, role) for event in told))
            RUINS[ruin][0](path)
            until(lambda: run.error)
    assert isinstance(run.error, StateInvalid)
    assert [event.code for event in told if isinstance(event, Halted)] == ["state.invalid"]


FULL = """
import resource, signal, sys, threading
sys.path.insert(0, sys.argv[2])
from deadline import until
from penstock.event import Led, StandingBy, StateAway, StateBack, TermGone
from penstock.cli.log import text_line
from penstock.status import observe
from datetime import datetime, UTC
from coordinators.test_state_damage import Prompt, carried

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
unlimited, told = resource.getrlimit(resource.RLIMIT_FSIZE), []
def has(kind): return any(isinstance(event, kind) for event in told)
with carried(Prompt(sys.argv[1], ttl=2.0), told) as run:
    until(lambda: has(Led))
    told.clear()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    until(lambda: has(StateAway))
    until(lambda: has(TermGone))
    until(lambda: (observe(run.pipeline).last_error or {}).get("code") == "state.unavailable")
    error = observe(run.pipeline).last_error
    assert not has(StandingBy), told
    assert not has(StateBack), told
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    until(lambda: has(StateBack) and has(Led))
    until(lambda: observe(run.pipeline).last_error is None)
print(error["message"])
for event in told:
    print(text_line(event, datetime.now(UTC)))
"""


def test_a_full_disk_is_named_in_status_and_log_with_the_store_and_its_error_until_there_is_room(path: Path) -> None:
    folder = str(Path(__file__).parents[1])
    ended = subprocess.run([sys.executable, "-c", FULL, str(path), folder], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    shown, *lines = ended.stdout.splitlines()
    assert "has not renewed its term for" in shown
    assert f"cannot use the state file {path}: disk I/O error" in shown
    [away] = [line for line in lines if "the state is unavailable" in line]
    assert f"state.unavailable: cannot use the state file {path}: disk I/O error; check that" in away
    [gone] = [line for line in lines if "was lost" in line]
    assert f"could not be written for too long: cannot use the state file {path}" in gone
    assert not [line for line in lines if "another process" in line]


def test_a_leader_that_is_silent_though_its_file_can_be_written_is_said_to_be_stopped(path: Path) -> None:
    state = SqliteCoordinator(str(path), ttl=10.0)
    with closing(state.candidate("p", "leader")) as leader:
        assert leader.campaign()
        assert state.pipeline_state("p").trouble is None
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("update terms set beat_at = ?", (time.time() - 60,))
        trouble = state.pipeline_state("p").trouble or {}
        assert trouble["code"] == StateUnavailable.code
        assert trouble["message"].startswith("leader leads p and has not renewed its term for 6")
        assert "the process is stopped" in trouble["message"]
