"""The reading half of a task by itself, without a session of Spark."""

import sqlite3
from collections import deque
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from filesink import FileSink

from many_lanes import LanesSource
from penstock.change import Change, Op, from_batch
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import SourcePruned, TransformInvalid
from penstock.pipeline import Pipeline, Transform
from penstock.progress.backfill import outstanding
from penstock.progress.batch_target import heads
from penstock.retry import Retry
from penstock.settings import settings
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.sqlite import snapshot
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE as LOG
from penstock.sources.sqlite.source import SqliteSource
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.bundles import encoding_of, unbundled
from penstock.spark.failing_row import find
from penstock.spark.reader import Reading, _read
from penstock.spark.rows import Aside, Mark
from penstock.spark.stop_before import StopBefore
from penstock.spark.task_spec import TaskSpec


@settings
class PrunedSource(SyntheticSource):
    """One that has only what lies behind the position that a file names."""

    file: str

    def open(self, lane, after, reader):
        if self.position(after) < (pruned := int(Path(self.file).read_text())):
            raise SourcePruned(f"nothing before {pruned} is left")
        return super().open(lane, after, reader)

    def read(self, span, reader):
        for end in (span.after, span.upto):
            if self.position(end) < (pruned := int(Path(self.file).read_text())):
                raise SourcePruned(f"nothing before {pruned} is left")
        yield from super().read(span, reader)


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "pruned").write_text("0")
    source = PrunedSource(total=1000, rate=1e6, file=str(tmp_path / "pruned"))
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    candidate = state.candidate("p", "me")
    term = candidate.campaign()
    state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
    yield TaskSpec(Pipeline("p", source, DiscardSink(), state), term, str(tmp_path), "query", 300.0)
    candidate.close()


def test_what_was_delivered_and_purged_while_a_reader_began_is_no_loss_to_it(spec, tmp_path):
    """Its predecessor's last record, or what the sink itself has kept, is written down after the reader has looked."""
    reading = _read(spec, LANE, 0)
    assert [piece.position for piece in unbundled(next(reading)) if isinstance(piece, Mark)] == [0]
    source = spec.pipeline.source
    spec.pipeline.state.place(spec.term, {LANE: Watermark(source.begin(LANE, "500"), 500)})
    (tmp_path / "pruned").write_text("500")
    found = [piece for batch in (next(reading) for _ in range(4)) for piece in unbundled(batch)]
    assert next(piece.position for piece in found if isinstance(piece, Mark)) == 500
    assert next(piece for piece in found if not isinstance(piece, Mark)).column(0)[0].as_py() == 501
    reading.close()


def test_what_was_purged_and_never_delivered_stops_the_pipeline(spec, tmp_path):
    reading = _read(spec, LANE, 0)
    next(reading)
    (tmp_path / "pruned").write_text("500")
    with pytest.raises(SourcePruned):
        list(reading)


def test_a_batch_whose_goal_a_predecessor_has_passed_and_purged_reads_nothing(spec, tmp_path):
    source = spec.pipeline.source
    spec.pipeline.state.place(spec.term, {LANE: Watermark(source.begin(LANE, "500"), 500)})
    (tmp_path / "pruned").write_text("500")
    batch = replace(spec, target={LANE: source.begin(LANE, "400")})
    found = [piece for given in _read(batch, LANE, 0) for piece in unbundled(given)]
    assert [piece.position for piece in found] == [500], "only the mark at the watermark"


@pytest.mark.parametrize("where", [None, "op = 'insert'"], ids=["bundles", "rows"])
def test_a_reader_that_is_stopped_before_it_has_a_term_gives_one_batch_that_says_nothing(spec, where):
    """A stream without a single batch is an error to Spark."""
    pipeline = replace(spec.pipeline, transform=Transform(where=where))
    waiting = replace(spec, pipeline=pipeline, given=None)
    waiting.stop()
    [batch] = _read(waiting, LANE, 0)
    assert list(encoding_of(pipeline.transform.has_sql).pieces(batch)) == []


@pytest.mark.parametrize("where", [None, "op = 'insert'"], ids=["bundles", "rows"])
def test_a_reader_that_waits_until_its_file_is_taken_notices_that_the_writer_is_gone(spec, where):
    """It can notice that only as it writes, so it repeats where it stands."""
    sink = FileSink(path="nowhere", retry=Retry(then="dead-letter"))
    pipeline = replace(spec.pipeline, sink=sink, transform=Transform(where=where))
    reading = _read(replace(spec, pipeline=pipeline, max_row=1), LANE, 0)
    given = (piece for batch in reading for piece in encoding_of(pipeline.transform.has_sql).pieces(batch))
    opening, aside = next(given), next(given)
    assert isinstance(aside, Aside)
    assert [next(given), next(given)] == [opening, opening]
    aside.done()
    assert isinstance(later := next(piece for piece in given if piece != opening), Aside)
    assert later.take().position == 2
    reading.close()


class RaisingTrial:
    """A transform that raises on the second of three changes."""

    def failure(self, changes):
        return "raised" if changes.num_rows == 3 else None

    def failing_row(self, changes):
        position, key = changes.column("position")[1].as_py(), changes.column("key")[1].as_py()
        return StopBefore(Change(position, Op.INSERT, "synthetic", key), TransformInvalid("it raises"))


def test_a_stop_before_a_change_of_a_lane_does_not_stop_another_lane_at_the_same_position(spec, tmp_path):
    (tmp_path / "lanes").mkdir()
    source = LanesSource(folder=str(tmp_path / "lanes"))
    source.write("a", 0, 5)
    source.write("b", 2, 5)
    spec.pipeline.state.place(spec.term, {lane: Watermark(source.begin(lane, "beginning"), 0) for lane in source.lanes()})
    pipeline = replace(spec.pipeline, source=source)
    batch = replace(spec, pipeline=pipeline, target=heads(source))
    stopped = replace(batch, stops=[find(RaisingTrial(), batch)])
    found = [piece for batch in Reading(stopped, "a", 0).rows() for piece in unbundled(batch)]
    assert [at for run in found if not isinstance(run, Mark) for at in run.column("position").to_pylist()] == [1, 2, 3, 4, 5]
    with pytest.raises(TransformInvalid, match="it raises"):
        list(Reading(stopped, "b", 0).rows())


def test_a_change_before_which_a_reader_halts_is_no_result_of_the_search(spec, tmp_path):
    """The lane of another one failed meanwhile: both halt at their own."""
    (tmp_path / "lanes").mkdir()
    source = LanesSource(folder=str(tmp_path / "lanes"))
    source.write("a", 0, 3)
    source.write("b", 0, 3)
    spec.pipeline.state.place(spec.term, {lane: Watermark(source.begin(lane, "beginning"), 0) for lane in source.lanes()})
    batch = replace(spec, pipeline=replace(spec.pipeline, source=source), target=heads(source))
    first = find(RaisingTrial(), batch)
    second = find(RaisingTrial(), replace(batch, stops=[first]))
    assert {first.lane, second.lane} == {"a", "b"}
    assert find(RaisingTrial(), replace(batch, stops=[first, second])) is None
    other = first._replace(change=replace(first.change, position=1))
    assert find(RaisingTrial(), replace(batch, stops=[other, second])).change.place == first.change.place


def test_the_search_passes_over_ranges_that_are_delivered(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "ROWS", 3)
    shop = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        connection.execute("create table t(id integer primary key)")
        enable(shop)
        connection.executemany("insert into t values(?)", [(number,) for number in range(1, 7)])
    source = SqliteSource(database=shop)
    pipeline, cursor = replace(spec.pipeline, source=source), source.begin(LOG, "snapshot")
    pipeline.state.place(spec.term, {LOG: Watermark(cursor, source.position(cursor))})
    query = replace(spec, pipeline=pipeline, target=outstanding(pipeline, spec.term))
    delivered, waiting = query.target.ranges.items()
    *_, last = source.snapshot.rows(delivered[1], again=False)
    pipeline.state.place(spec.term, {delivered[0]: Watermark(last.upto, source.position(last.upto))})
    assert find(RaisingTrial(), query).lane == waiting[0]


def test_what_a_batch_reads_is_closed_at_a_stop_while_the_changes_before_it_are_delivered(spec, monkeypatch):
    closed = []

    def recorded(source, span, reader, read=SyntheticSource.read):
        try:
            yield from read(source, span, reader)
        finally:
            closed.append(True)

    monkeypatch.setattr(PrunedSource, "read", recorded)
    source = spec.pipeline.source
    stop = StopBefore(Change(3, Op.INSERT, "synthetic", "{}"), TransformInvalid("it raises"), LANE)
    reading = _read(replace(spec, target={LANE: source.begin(LANE, "10")}, stops=[stop]), LANE, 0)
    deque(islice(reading, 10), maxlen=0)
    assert closed
    reading.close()


def test_rows_that_a_query_before_a_stop_may_have_delivered_and_that_are_gone_come_as_deletes(spec, tmp_path, monkeypatch):
    shop = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(shop, isolation_level=None)) as connection:
        connection.execute("create table t(id integer primary key)")
        enable(shop)
        connection.execute("insert into t values(1), (2), (3)")
        source = SqliteSource(database=shop)
        pipeline, cursor = replace(spec.pipeline, source=source), source.begin(LOG, "snapshot")
        spec.pipeline.state.place(spec.term, {LOG: Watermark(cursor, source.position(cursor))})
        ranges = outstanding(pipeline, spec.term)
        connection.execute("delete from t where id = 2")
    stop = StopBefore(Change(7, Op.REFRESH, "u", "{}", ordinal=1), TransformInvalid("it raises"), "snapshot:7")
    stopped = replace(spec, pipeline=pipeline, target=ranges, stops=[stop])
    monkeypatch.setattr("penstock.spark.reader.TaskContext", FirstAttempt)
    found = [run for batch in Reading(stopped, *ranges.ranges, 0).rows() for run in unbundled(batch) if not isinstance(run, Mark)]
    assert [(change.op, change.key) for run in found for change in from_batch(run)] == [
        ("refresh", '{"id":1}'),
        ("refresh", '{"id":3}'),
        ("delete", '{"id":2}'),
    ]


class FirstAttempt:
    """The context of a task that Spark has not repeated."""

    @classmethod
    def get(cls):
        return cls()

    def attemptNumber(self):
        return 0
