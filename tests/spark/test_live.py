"""The live path over a real Spark session: synthetic changes, a sink that writes down what it gets."""

import json
import time

import pytest
from filesink import FileSink, GapSource, StepSource, positions, written
from restarted import Restarted

from deadline import PATIENCE, until
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import DeliveryExhausted, TransformInvalid
from penstock.pipeline import Pipeline, Transform
from penstock.retry import Retry
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.session import ROOMY, beside

TOTAL = 3000


NEVER = bool
"""Called without anything it says no."""


class Live:
    """A pipeline under a term, with a query that the test drives."""

    def __init__(self, spark, tmp_path, monkeypatch):
        self.spark, self.folder, self.out = spark, tmp_path, tmp_path / "out"
        self.state = SqliteCoordinator(path=str(tmp_path / "state.db"))
        self.candidate, self.query, self.monkeypatch = None, None, monkeypatch

    def start(self, *args, **how):
        self.make(*args, **how)
        self.query.start(self.term)

    def make(
        self,
        source=None,
        where=None,
        epoch_seconds=300.0,
        name="live",
        select=None,
        function=None,
        timeout=Transform.timeout,
        **sink,
    ):
        self.monkeypatch.setattr("penstock.spark.query.EPOCH_SECONDS", epoch_seconds)
        source = source or SyntheticSource(rate=1e6, total=TOTAL)
        transform = Transform(where=where, select=select, function=function, timeout=timeout)
        sink = FileSink(path=str(self.out), **sink)
        self.pipeline = Pipeline(name, source, sink, self.state, transform, folder=str(self.folder))
        self.candidate = self.state.candidate(name, "test")
        self.term = term = self.candidate.campaign()
        if self.state.watermark(name, LANE) is None:
            self.state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        self.query = Restarted(self.spark, self.pipeline, str(self.folder))

    def until_position(self, position=TOTAL):
        assert self.query.wait(lambda: self.watermark().position >= position, PATIENCE), f"stuck at {self.watermark()}"

    def watermark(self):
        return self.state.watermark(self.pipeline.name, LANE)

    def stop(self):
        if self.query:
            self.query.ask_to_stop()
            self.query.stop()
        if self.candidate:
            self.candidate.resign()
            self.candidate.close()
        self.query = self.candidate = None


@pytest.fixture
def live(spark, tmp_path, monkeypatch):
    made = Live(spark, tmp_path, monkeypatch)
    yield made
    made.stop()


def test_every_change_is_delivered_once_and_in_order_when_nothing_fails(live):
    live.start()
    live.until_position()
    assert positions(live.out) == list(range(1, TOTAL + 1))


def test_a_query_that_is_prepared_delivers_nothing_until_it_is_given_a_term(live):
    live.make()
    live.query.prepare(NEVER)
    assert live.query.failure() is None
    assert not live.out.exists()
    prepared = live.query._query.runId
    live.query.start(live.term)
    live.until_position()
    assert live.query._query.runId == prepared, "it was started anew"
    assert positions(live.out) == list(range(1, TOTAL + 1))


def test_a_prepared_query_that_died_meanwhile_is_started_anew(live):
    live.make()
    live.query.prepare(NEVER)
    live.query._query.stop()
    live.query.start(live.term)
    live.until_position()
    assert positions(live.out) == list(range(1, TOTAL + 1))


def test_a_prepared_query_that_nobody_needs_ends_at_once_and_has_done_nothing(live):
    live.make()
    live.query.prepare(NEVER)
    live.query.stop()
    assert live.query.failure() is not None
    assert not live.out.exists()


def test_preparing_leaves_off_when_the_term_has_come(live):
    live.make()
    live.query.prepare(lambda: True)
    live.query.start(live.term)
    live.until_position()
    assert positions(live.out) == list(range(1, TOTAL + 1))


def test_what_spark_does_not_understand_is_told_before_there_is_a_term(live):
    live.make(where="no_such_column = 1")
    with pytest.raises(TransformInvalid, match="no_such_column"):
        live.query.prepare(NEVER)


def test_a_query_shares_its_data_source_with_no_other_since_spark_writes_to_it_as_a_query_starts(live):
    live.start()
    live.until_position(1)
    assert live.query.failure() is None
    assert live.spark.streams.active == []


def test_a_session_of_a_query_has_our_settings_and_what_it_was_given_but_not_over_a_persons(spark):
    settings = dict.fromkeys(ROOMY, "131072")
    made = beside(spark, settings)
    assert {key: made.conf.get(key) for key in settings} == settings
    assert made.conf.get("spark.sql.streaming.stopTimeout") == spark.conf.get("spark.sql.streaming.stopTimeout") == "60s"
    [chosen, *_] = settings
    before = spark.conf.get(chosen)
    spark.conf.set(chosen, "4096")
    try:
        assert beside(spark, settings).conf.get(chosen) != settings[chosen]
    finally:
        spark.conf.set(chosen, before)


def test_the_watermark_is_where_the_next_query_goes_on(live):
    live.start()
    live.until_position()
    live.stop()
    live.start(SyntheticSource(rate=1e6, total=TOTAL + 500))
    live.until_position(TOTAL + 500)
    assert positions(live.out) == list(range(1, TOTAL + 501))


def test_a_query_that_follows_another_in_the_same_term_is_not_stopped_by_what_stopped_that_one(live):
    live.start(SyntheticSource(rate=1000, total=2000, origin=time.time()))
    live.until_position(500)
    live.query.ask_to_stop()
    live.query.stop()
    live.query = Restarted(live.spark, live.pipeline, str(live.folder))
    live.query.start(live.term)
    live.until_position(2000)
    assert list(dict.fromkeys(positions(live.out))) == list(range(1, 2001))


def test_a_letter_is_parked_before_the_watermark_passes_it(live):
    live.start(condemn_at=700, retry=Retry(then="dead-letter"))
    live.until_position(700)
    assert [letter.change.position for letter in live.state.letters("live")] == [700]
    live.until_position()
    assert positions(live.out) == [*range(1, 700), *range(701, TOTAL + 1)]


def test_many_short_epochs_lose_and_repeat_nothing(live):
    live.start(SyntheticSource(rate=500, origin=time.time()), epoch_seconds=0.7)
    until(lambda: len({line[2] for line in written(live.out) if len(line) > 2}) > 3)
    live.stop()
    got = positions(live.out)
    assert got == list(range(1, len(got) + 1))


def test_a_lone_change_arrives_without_waiting_for_the_next(live):
    live.start(StepSource(total=16, path=str(live.out)))
    live.until_position(16)  # the source gives a change, or a sign of life, only after the change before it is written
    assert positions(live.out) == list(range(1, 17))


def test_where_sees_documents_and_filtered_changes_still_move_the_watermark(live):
    live.start(where="table = 'synthetic' and try_variant_get(after, '$.total', 'double') >= 199")
    live.until_position()
    kept = [json.loads(line[4])["total"] for line in written(live.out)]
    assert set(kept) == {199.5}
    assert len(kept) == TOTAL // 200
    assert live.watermark().delivered == positions(live.out)[-1] < TOTAL


def test_a_condition_that_drops_everything_still_moves_the_watermark(live):
    live.start(where="op = 'delete'")
    live.until_position()
    assert written(live.out) == []
    assert live.watermark().delivered is None


def test_a_condition_that_raises_on_no_document_lets_the_null_forms_pass(live):
    live.start(where="try_variant_get(after, '$.text', 'int') is null and key is not null and before is null")
    live.until_position()
    assert len(positions(live.out)) == TOTAL


@pytest.mark.parametrize("where", ["no_such_column = 1", "table = = 'x'", "1 + 1", "table = 'x') or (1 = 1"])
def test_a_condition_that_spark_does_not_understand_is_named(live, where):
    with pytest.raises(TransformInvalid, match=r"transform\.where"):
        live.start(where=where)


def test_sinks_get_the_original_text_whatever_the_condition_looked_at(live):
    live.start(where="try_variant_get(after, '$.id', 'int') is not null")
    live.until_position()
    source = SyntheticSource(rate=1e6, total=TOTAL)
    original = source._batch(1, 5).column(5).to_pylist()
    assert [line[4] for line in written(live.out)[:5]] == original


def test_a_failed_attempt_is_retried_at_once_from_the_watermark(live):
    live.start(SyntheticSource(rate=100, total=600, origin=time.time()), fail_at=200, epoch_seconds=4 * PATIENCE)
    live.until_position(600)  # before the epoch ends, when Spark would tell of the failure
    got = positions(live.out)
    assert list(dict.fromkeys(got)) == list(range(1, 601))
    assert_repeats_are_contiguous(got)


def test_a_retried_task_waits_for_its_predecessors_last_breath(live):
    live.start(SyntheticSource(rate=1e6, total=200), fail_at=150, linger=0.5)
    live.until_position(200)
    assert_repeats_are_contiguous(positions(live.out))


def test_what_only_a_person_can_mend_halts_and_is_recorded(live):
    live.start(halt_at=1500)
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    standing = live.state.pipeline_state("live")
    assert standing.error["code"] == DeliveryExhausted.code
    assert "1500" in standing.error["message"]
    assert standing.watermarks[LANE].position < 1500
    assert 1500 not in positions(live.out)


@pytest.mark.parametrize("where", [None, "op = 'delete'"])
def test_what_came_before_a_gap_is_delivered_before_the_gap_halts(live, where):
    live.start(GapSource(gap=2001), where=where)
    assert live.query.wait(live.query.was_stopped_inside, PATIENCE)
    assert live.state.pipeline_state("live").error["code"] == "capture.broken"
    assert live.watermark().position == 2000
    assert positions(live.out) == ([] if where else list(range(1, 2001)))


def test_a_deposed_leader_ends_by_itself_and_changes_nothing(live):
    live.start(SyntheticSource(rate=1000, origin=time.time()))
    live.until_position(500)
    live.candidate.close()
    successor = live.state.candidate("live", "successor")
    term = until(successor.campaign)
    assert term.epoch == 2
    live.state.place(term, {LANE: Watermark(live.pipeline.source.begin(LANE, "beginning"), 0)})
    failure = until(live.query.failure)
    assert failure.code == "term.lost"
    assert live.watermark().position == 0
    live.candidate = successor


def assert_repeats_are_contiguous(got: list[int]):
    highest = 0
    for before, position in zip([0, *got], got, strict=False):
        assert position == before + 1 or position <= highest + 1, f"{position} after {before}"
        assert position <= highest + 1
        highest = max(highest, position)
