"""Batches over a real Spark session: synthetic changes up to a goal, a sink that writes down what it gets."""

import pytest
from filesink import FileSink, GapSource, SlowSource, positions, written
from restarted import Restarted

from deadline import PATIENCE, until
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import DeliveryExhausted
from penstock.pipeline import Pipeline, Transform
from penstock.progress.batch_target import heads
from penstock.sources.synthetic import LANE, SyntheticSource

TOTAL = 3000


class Batch:
    """A pipeline under a term, carried up to where its source ends."""

    def __init__(self, spark, tmp_path):
        self.spark, self.folder, self.out = spark, tmp_path, tmp_path / "out"
        self.state = SqliteCoordinator(path=str(tmp_path / "state.db"))
        self.candidate = self.state.candidate("batch", "test")
        self.term = self.candidate.campaign()
        self.queries = []

    def start(self, source=None, where=None, goal=None, **sink):
        source = source or SyntheticSource(rate=1e6, total=TOTAL)
        pipeline = Pipeline("batch", source, FileSink(path=str(self.out), **sink), self.state, Transform(where=where), "batch")
        if self.state.watermark("batch", LANE) is None:
            self.state.place(self.term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        query = Restarted(self.spark, pipeline, str(self.folder), goal or heads(source))
        self.queries.append(query)
        query.start(self.term)
        return query

    def carry(self, *args, **how):
        query = self.start(*args, **how)
        assert query.wait(query.has_ended, PATIENCE), f"stuck at {self.position}"

    @property
    def position(self):
        return self.state.watermark("batch", LANE).position

    def end(self):
        for query in self.queries:
            query.stop()
        self.candidate.resign()
        self.candidate.close()


@pytest.fixture
def batch(spark, tmp_path):
    made = Batch(spark, tmp_path)
    yield made
    made.end()


def test_a_batch_delivers_everything_up_to_its_goal_in_order_and_ends_by_itself(batch):
    source = SyntheticSource(rate=1e6, total=TOTAL)
    batch.carry(source, goal={LANE: source.begin(LANE, "2000")})
    assert batch.position == 2000
    batch.carry(source)
    assert batch.position == TOTAL
    batch.carry(source)
    assert positions(batch.out) == list(range(1, TOTAL + 1)), "what was delivered came again, or out of order"


def test_a_condition_that_drops_everything_still_takes_the_watermark_to_the_goal(batch):
    batch.carry(where="op = 'delete'")
    assert batch.position == TOTAL
    assert written(batch.out) == []


def test_progress_is_recorded_inside_a_batch_also_where_a_condition_drops_it_all(batch):
    query = batch.start(SlowSource(rate=1e6, total=TOTAL, pause=0.25), where="op = 'delete'")
    assert query.wait(lambda: 0 < batch.position < TOTAL, PATIENCE)
    query.ask_to_stop()
    assert query.wait(query.has_ended, PATIENCE)
    assert 0 < batch.position < TOTAL


def test_an_attempt_that_fails_is_tried_again_from_the_watermark(batch):
    batch.carry(fail_at=2500, linger=0.3)
    assert batch.position == TOTAL
    got = positions(batch.out)
    assert list(dict.fromkeys(got)) == list(range(1, TOTAL + 1))
    assert len(got) < TOTAL + 2000, "the whole batch was repeated"


def test_what_only_a_person_can_mend_is_recorded_and_is_no_success(batch):
    query = batch.start(halt_at=1500)
    assert query.wait(query.was_stopped_inside, PATIENCE)
    standing = batch.state.pipeline_state("batch")
    assert standing.error["code"] == DeliveryExhausted.code
    assert batch.position < 1500
    assert 1500 not in positions(batch.out)


def test_what_came_before_a_gap_is_delivered_before_the_gap_halts(batch):
    query = batch.start(GapSource(rate=1e6, total=TOTAL, gap=2001))
    assert query.wait(query.was_stopped_inside, PATIENCE)
    assert batch.state.pipeline_state("batch").error["code"] == "capture.broken"
    assert batch.position == 2000
    assert positions(batch.out) == list(range(1, 2001))


def test_a_change_that_the_transform_raises_on_halts_the_batch_once_everything_before_it_is_delivered(batch):
    query = batch.start(where="position < 2001 or raise_error('no')")
    assert query.wait(query.was_stopped_inside, PATIENCE)
    error = batch.state.pipeline_state("batch").error
    assert error["code"] == "transform.invalid"
    assert "2001" in error["message"]
    assert batch.position == 2000
    assert positions(batch.out)[-1] == 2000


def test_a_batch_whose_term_was_taken_changes_nothing(batch):
    query = batch.start(SlowSource(rate=1e6, total=TOTAL, pause=0.25))
    assert query.wait(lambda: batch.position > 0, PATIENCE)
    batch.candidate.close()
    batch.candidate = batch.state.candidate("batch", "successor")
    term = until(batch.candidate.campaign)
    batch.state.place(term, {LANE: Watermark(SyntheticSource().begin(LANE, "beginning"), 0)})
    failure = until(query.failure)
    assert failure.code == "term.lost"
    assert batch.position == 0
