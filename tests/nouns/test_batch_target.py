"""How far a query is to go, and whether it has come there: pure decisions over a real store."""

from contextlib import closing
from dataclasses import replace

import pytest

from penstock.change import Lane
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.pipeline import Pipeline
from penstock.progress.batch_target import BACKLOG, catch_up
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.synthetic import LANE, SyntheticSource
from sparse import SparseSource


@pytest.fixture
def behind(tmp_path):
    """A pipeline so many changes behind the head of its source."""

    def made(changes):
        state = SqliteCoordinator(path=str(tmp_path / "state.db"))
        source = SyntheticSource(rate=1e9, total=2 * BACKLOG)
        candidate = state.candidate("far", "test")
        cursor = source.begin(LANE, str(2 * BACKLOG - changes))
        state.place(candidate.campaign(), {LANE: Watermark(cursor, source.position(cursor))})
        candidate.close()
        return Pipeline("far", source, DiscardSink(), state)

    return made


@pytest.mark.parametrize(("changes", "is_far"), [(BACKLOG, True), (BACKLOG - 1, False), (0, False)])
def test_only_a_pipeline_that_is_far_behind_has_a_target_before_it_goes_live(behind, changes, is_far):
    pipeline = behind(changes)
    target = catch_up(pipeline)
    assert (target is not None) is is_far
    if target:
        assert pipeline.source.position(target[Lane(LANE)]) == 2 * BACKLOG


def test_a_pipeline_that_stands_nowhere_yet_goes_live(tmp_path):
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    assert catch_up(Pipeline("far", SyntheticSource(rate=1e9, total=2 * BACKLOG), DiscardSink(), state)) is None


class Uncounted(SyntheticSource):
    """A source that cannot count."""

    def backlog(self, lane, after, upto=None, most=None):
        assert most == BACKLOG
        return replace(super().backlog(lane, after, upto, most), changes=None)


def test_a_pipeline_whose_backlog_is_unknown_goes_live(behind):
    pipeline = behind(2 * BACKLOG)
    assert catch_up(replace(pipeline, source=Uncounted(rate=1e9, total=2 * BACKLOG))) is None


@pytest.mark.parametrize(("changes", "is_far"), [(BACKLOG, True), (BACKLOG - 1, False)])
def test_changes_are_counted_and_not_the_positions_between(tmp_path, changes, is_far):
    state, source = SqliteCoordinator(path=str(tmp_path / "state.db")), SparseSource(total=changes)
    with closing(state.candidate("far", "test")) as candidate:
        state.place(candidate.campaign(), {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
    target = catch_up(Pipeline("far", source, DiscardSink(), state))
    assert (target is not None) is is_far
