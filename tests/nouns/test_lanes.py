"""Lanes appear and end while a pipeline runs: which are read, and where they begin."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from many_lanes import LanesSource
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import LogDamaged, SourceUnavailable
from penstock.pipeline import Pipeline
from penstock.progress.backfill import outstanding
from penstock.progress.batch_target import Batch
from penstock.running.lanes import open_lanes
from penstock.running.resume import appear, place
from penstock.sinks.discard.sink import DiscardSink
from penstock.status import observe


@pytest.fixture
def pipeline(tmp_path):
    (tmp_path / "lanes").mkdir()
    source = LanesSource(folder=str(tmp_path / "lanes"), start="now")
    source.write("a", 0, 10)
    return Pipeline("lanes", source, DiscardSink(), SqliteCoordinator(path=str(tmp_path / "state.db")))


@pytest.fixture
def term(pipeline):
    with closing(pipeline.state.candidate("lanes", "me")) as candidate:
        yield candidate.campaign()


def positions(pipeline):
    return {lane: mark.position for lane, mark in pipeline.state.pipeline_state("lanes").watermarks.items()}


def test_a_lane_that_appears_is_read_from_its_beginning_wherever_the_pipeline_started(pipeline, term):
    place(pipeline, term, None, None)
    pipeline.source.write("b", 1000, 1003)
    appear(pipeline, term)
    assert positions(pipeline) == {"a": 10, "b": 1000}
    assert open_lanes(pipeline) == {"a", "b"}


@pytest.mark.parametrize("said", [None, "now"])
def test_a_lane_that_appeared_while_no_process_ran_is_read_from_its_beginning(pipeline, term, said):
    place(pipeline, term, None, None)
    pipeline.source.write("b", 1000, 1003)
    place(pipeline, term, said, None)
    assert positions(pipeline) == {"a": 10, "b": 1000}


class HalfThere(LanesSource):
    """A source of which lane b cannot be reached until its file `reachable` is there."""

    def begin(self, lane, start):
        if lane == "b" and not Path(self.folder, "reachable").exists():
            raise SourceUnavailable("lane b cannot be reached")
        return super().begin(lane, start)


def test_a_start_that_fails_between_two_lanes_places_none_of_them(pipeline, term):
    source = HalfThere(folder=pipeline.source.folder, start="now")
    source.write("b", 1000, 1003)
    pipeline = replace(pipeline, source=source)
    with pytest.raises(SourceUnavailable):
        place(pipeline, term, None, None)
    assert positions(pipeline) == {}
    Path(source.folder, "reachable").touch()
    source.write("a", 0, 12)
    place(pipeline, term, None, None)
    assert positions(pipeline) == {"a": 12, "b": 1003}, "both begin at the same now"


class Damaged(LanesSource):
    """A source without registrations that no longer continues where it was read."""

    def read(self, span, reader):
        raise LogDamaged("a change is missing")


def test_a_term_begins_where_a_source_without_registrations_is_proven_to_continue(pipeline, term):
    place(pipeline, term, None, None)
    with pytest.raises(LogDamaged):
        place(replace(pipeline, source=Damaged(folder=pipeline.source.folder)), term, None, None)


def test_a_lane_is_over_once_it_was_delivered_to_its_end(pipeline, term):
    place(pipeline, term, None, None)
    pipeline.source.write("a", 0, 12, has_ended=True)
    assert open_lanes(pipeline) == {"a"}
    pipeline.state.place(term, {"a": Watermark(pipeline.source.head("a"), 12)})
    assert open_lanes(pipeline) == set()


def test_a_lane_that_has_appeared_and_is_not_begun_waits_and_hinders_none(pipeline, term):
    place(pipeline, term, None, None)
    batch = Batch(pipeline)
    batch.target()
    pipeline.source.write("b", 1000, 1003)
    assert batch.is_done(), "the target of a batch is where its source ended at the first look"
    assert outstanding(pipeline, term) is None
    assert observe(pipeline).backlog == 3
