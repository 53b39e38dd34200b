"""A pipeline whose lanes appear and end, over a real Spark session."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from filesink import FileSink, positions
from restarted import Restarted

from deadline import PATIENCE, until
from many_lanes import LanesSource
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.event import Event, LaneClaimed
from penstock.pipeline import Pipeline
from penstock.running.lanes import open_lanes
from penstock.running.pipeline_run import PipelineRun


class OneSession:
    """An engine over the session of these tests."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._spark, self._folder = spark, folder

    def query(self, pipeline: Pipeline, target: Any, lanes: Any) -> Restarted:
        return Restarted(self._spark, pipeline, self._folder, target, lanes)

    def lost(self) -> None:
        return None

    def warm(self, is_enough: object) -> None:
        return None


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lanes").mkdir()
    made = LanesSource(folder=str(tmp_path / "lanes"))
    made.write("a", 0, 5)
    return made


def test_lanes_appear_and_end_while_a_pipeline_runs(spark, source, tmp_path):
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    pipeline = Pipeline("lanes", source, FileSink(path=str(tmp_path / "out")), state, folder=str(tmp_path))
    stop, told = threading.Event(), list[Event]()
    run = PipelineRun(pipeline, None, stop, told.append)
    with run.entered():
        running = threading.Thread(target=run.run, args=(OneSession(spark, str(tmp_path)),))
        running.start()
        try:
            until(lambda: {*range(1, 6)} <= {*positions(tmp_path / "out")})
            source.write("b", 1000, 1003)
            until(lambda: {1001, 1002, 1003} <= {*positions(tmp_path / "out")})
            source.write("a", 0, 7, has_ended=True)
            until(lambda: {6, 7} <= {*positions(tmp_path / "out")} and open_lanes(pipeline) == {"b"})
            source.write("b", 1000, 1005)
            until(lambda: {1004, 1005} <= {*positions(tmp_path / "out")})
        finally:
            stop.set()
            running.join(PATIENCE)
    assert run.error is None
    found = positions(tmp_path / "out")
    for lane in (range(1, 8), range(1001, 1006)):
        first = list(dict.fromkeys(position for position in found if position in lane))
        assert first == [*lane], "in order, and nothing is lost"
    assert {event.lane for event in told if isinstance(event, LaneClaimed)} <= {"a", "b"}
