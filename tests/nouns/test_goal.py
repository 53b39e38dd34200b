"""How far a query is to go, and whether it has come there: pure decisions over a real store."""

import pytest

from penstock.change import Lane
from penstock.coordinators.sqlite import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.goal import BACKLOG, catch_up
from penstock.pipeline import Pipeline
from penstock.sinks.discard import DiscardSink
from penstock.sources.synthetic import LANE, SyntheticSource


@pytest.fixture
def behind(tmp_path):
    """A pipeline so many changes behind the head of its source."""

    def made(changes):
        state = SqliteCoordinator(path=str(tmp_path / "state.db"))
        source = SyntheticSource(rate=1e9, total=2 * BACKLOG)
        candidate = state.candidate("far", "test")
        cursor = source.begin(LANE, str(2 * BACKLOG - changes))
        state.place(candidate.campaign(), LANE, Watermark(cursor, source.position(cursor)))
        candidate.close()
        return Pipeline("far", source, DiscardSink(), state)

    return made


@pytest.mark.parametrize(("changes", "is_far"), [(BACKLOG, True), (BACKLOG - 1, False), (0, False)])
def test_only_a_pipeline_that_is_far_behind_has_a_goal_before_it_goes_live(behind, changes, is_far):
    pipeline = behind(changes)
    goal = catch_up(pipeline)
    assert (goal is not None) is is_far
    if goal:
        assert pipeline.source.position(goal[Lane(LANE)]) == 2 * BACKLOG


def test_a_pipeline_that_stands_nowhere_yet_goes_live(tmp_path):
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    assert catch_up(Pipeline("far", SyntheticSource(rate=1e9, total=2 * BACKLOG), DiscardSink(), state)) is None
