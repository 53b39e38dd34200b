"""A writer at work in the process of the test, over a state in SQLite."""

import os
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from filesink import FileSink, positions

from penstock.change import NO_CHANGES, Change, Op, to_batch
from penstock.coordinator import Tally
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import EngineFailed, StateUnavailable
from penstock.pipeline import Pipeline, Transform
from penstock.retry import Retry
from penstock.settings import settings
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.bundles import encoding_of
from penstock.spark.calls import Calls
from penstock.spark.rows import Mark
from penstock.spark.task_spec import TaskSpec
from penstock.spark.writer import _deliver

CHANGES = [Change(at, Op.INSERT, "orders", f'{{"id":{at}}}', None, "{}", at=at) for at in range(1, 4)]
SOURCE = SyntheticSource(rate=1e6, total=len(CHANGES))


@settings
class OpenSink(FileSink):
    """Notes that it was opened."""

    def open(self, assignment):
        Path(f"{self.path}.opened").touch()
        return super().open(assignment)


@settings
class LockingSink(FileSink):
    """Locks the state as soon as something arrives."""

    state: str = ""

    def open(self, assignment):
        delivery = super().open(assignment)
        write = delivery.write

        def lock(change):
            LOCKS.append(locked(self.state))
            delivery.write = write
            write(change)

        delivery.write = lock
        return delivery


LOCKS = []


def locked(path):
    """A connection that holds the lock to write."""
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("begin immediate")
    return lock


class Lane:
    """One lane under a term; `kill` leaves a death of a change, `deliver` is one attempt."""

    def __init__(self, folder, sink, ttl=5.0):
        self.state = SqliteCoordinator(path=str(folder / "state.db"), ttl=ttl)
        self.candidate = self.state.candidate("live", "test")
        term = self.candidate.campaign()
        self.state.place(term, {LANE: Watermark(SOURCE.begin(LANE, "beginning"), 0)})
        transform = Transform(function="rules:spread")
        pipeline = Pipeline("live", SOURCE, sink, self.state, transform, folder=str(Path(__file__).parent))
        self.spec = TaskSpec(pipeline, term, str(folder / "run"), "query", 300.0)

    def kill(self, change):
        pid = os.fork()
        if pid == 0:
            Calls(self.spec, LANE, 1).enter(change)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

    def deaths(self):
        found = Calls(self.spec, LANE, 9)
        found.close()
        return [change.position for change in CHANGES for _, death in found.parts(to_batch([change])) if death]

    def deliver(self, changes, begin=0, task=2):
        encoding = encoding_of(False)
        opening, end = (Mark(LANE, at, SOURCE.begin(LANE, str(at + 1))) for at in (begin, CHANGES[-1].position))
        _deliver(self.spec, task, [encoding.pack(NO_CHANGES, opening, 0), encoding.pack(to_batch(changes), end, 0)])


@pytest.fixture
def lane(tmp_path):
    made = []

    def make(sink, **how):
        made.append(Lane(tmp_path, sink(path=str(tmp_path / "out"), retry=Retry(then="dead-letter", tries=1)), **how))
        return made[0]

    yield make
    for lock in LOCKS:
        lock.close()
    LOCKS.clear()
    for one in made:
        one.candidate.close()


def test_no_sink_is_opened_where_the_folder_of_the_run_belongs_to_others(lane, tmp_path):
    one = lane(OpenSink)
    os.mkdir(one.spec.folder, 0o755)
    with pytest.raises(EngineFailed, match="mode 755"):
        one.deliver(CHANGES)
    assert not (tmp_path / "out.opened").exists()
    os.chmod(one.spec.folder, 0o700)
    one.deliver(CHANGES, task=3)
    assert (tmp_path / "out.opened").exists()


@pytest.mark.parametrize("begin", [0, 2])
def test_a_death_of_a_change_that_another_leader_has_passed_is_forgotten(lane, tmp_path, begin):
    one = lane(FileSink)
    one.spec = replace(one.spec, pipeline=replace(one.spec.pipeline, sink=FileSink(path=str(tmp_path / "out"))))
    one.kill(CHANGES[1])
    assert one.deaths() == [2]
    with one.state.claim(one.spec.term, LANE, 1) as claim:
        claim.advance(Watermark(SOURCE.begin(LANE, str(begin + 1)), begin), Tally())
    one.deliver(CHANGES[2:], begin)
    assert one.deaths() == []
    assert one.state.pipeline_state("live").trouble is None


def test_a_death_stays_until_its_letter_and_the_watermark_are_recorded(lane, tmp_path):
    one = lane(LockingSink, ttl=4.0)
    state = str(tmp_path / "state.db")
    one.spec = replace(one.spec, pipeline=replace(one.spec.pipeline, sink=replace(one.spec.pipeline.sink, state=state)))
    one.kill(CHANGES[1])
    with pytest.raises(StateUnavailable):
        one.deliver(CHANGES[:2])
    assert positions(tmp_path / "out")[:1] == [1]
    assert one.deaths() == [2]
