"""Rows that are larger than Spark may carry, over a real session of Spark and a real database."""

import json
import sqlite3
from dataclasses import replace

import pytest
from filesink import FileSink
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from restarted import Restarted

from deadline import PATIENCE, until
from penstock.change import Change, Op
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import EngineFailed, RowTooLarge
from penstock.pipeline import Pipeline, Transform
from penstock.progress.backfill import outstanding
from penstock.progress.batch_target import heads
from penstock.retry import Retry
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.spark.failing_row import Trial, find
from penstock.spark.trial import put_through
from penstock.text.size import Bytes

LIMIT, LARGE = Bytes(500_000), 600_000
WHERE = "try_variant_get(after, '$.id', 'int') > 0"


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("create table t(id integer primary key, v text)")
        enable(str(path))
        for number in range(1, 6):
            connection.execute("insert into t values(?, ?)", (number, "x" * (LARGE if number == 3 else 5)))
    connection.close()
    return str(path)


class Carried:
    """A pipeline over a few rows, the third of which is too large."""

    def __init__(self, spark, tmp_path, shop, then, transform, begin):
        self.out, self.state = tmp_path / "out", SqliteCoordinator(path=str(tmp_path / "state.db"))
        self.source, self._spark, self._folder = SqliteSource(database=shop, max_row=LIMIT), spark, str(tmp_path)
        sink = FileSink(path=str(self.out), retry=Retry(then=then), failpoints=str(tmp_path))
        self.pipeline = Pipeline("large", self.source, sink, self.state, transform, folder=str(tmp_path))
        self.candidate = self.state.candidate("large", "test")
        self.term = self.candidate.campaign()
        cursor = self.source.begin(LANE, begin)
        self.state.place(self.term, {LANE: Watermark(cursor, self.source.position(cursor))})

    def start(self, goal=None):
        self.query = Restarted(self._spark, self.pipeline, self._folder, goal)
        self.query.start(self.term)

    def until_position(self, position):
        assert self.query.wait(lambda: self.state.watermark("large", LANE).position >= position, PATIENCE)

    def delivered(self):
        return [int(line.split("\t")[0]) for line in self.out.read_text().splitlines()]

    def close(self):
        self.query.ask_to_stop()
        self.query.stop()
        self.candidate.resign()
        self.candidate.close()


@pytest.fixture
def carry(spark, tmp_path, shop):
    made = []

    def start(then, where=None, goal=False, function=None, begin="beginning"):
        made.append(carried := Carried(spark, tmp_path, shop, then, Transform(where=where, function=function), begin))
        carried.start(heads(carried.source) if goal else outstanding(carried.pipeline, carried.term))
        return carried

    yield start
    for one in made:
        one.close()


@pytest.mark.parametrize(("where", "goal"), [(None, False), (WHERE, True)], ids=["bundles, live", "rows, batch"])
def test_a_row_that_is_too_large_is_parked_whole_and_the_others_arrive(carry, tmp_path, where, goal):
    carried = carry("dead-letter", where, goal)
    carried.until_position(5)
    assert carried.delivered() == [1, 2, 4, 5]
    [letter] = carried.state.letters("large")
    assert (letter.change.position, letter.change.key, letter.code) == (3, '{"id":3}', RowTooLarge.code)
    assert letter.change.after == '{"id":3,"v":"' + "x" * LARGE + '"}'
    assert f"has {LARGE + 23} bytes, and source.max_row is 500KB" in letter.message
    assert list(tmp_path.glob("*.row-*")) == []


def test_a_row_of_a_snapshot_that_is_too_large_is_parked_whole_and_the_others_arrive(carry):
    carried = carry("dead-letter", begin="snapshot")
    assert carried.query.wait(carried.query.has_ended, PATIENCE)
    assert [json.loads(line.split("\t")[4])["id"] for line in carried.out.read_text().splitlines()] == [1, 2, 4, 5]
    [letter] = carried.state.letters("large")
    assert (letter.change.op, letter.change.key, letter.code) == (Op.REFRESH, '{"id":3}', RowTooLarge.code)
    assert outstanding(carried.pipeline, carried.term) is None


def test_a_function_is_not_called_for_a_row_that_is_too_large_and_what_it_makes_of_the_others_arrives_in_order(carry):
    carried = carry("dead-letter", function="rules:doubled_unless_large")
    carried.until_position(5)
    assert carried.delivered() == [1, 1, 2, 2, 4, 4, 5, 5]
    [letter] = carried.state.letters("large")
    assert (letter.change.position, letter.change.ordinal, letter.code) == (3, None, RowTooLarge.code)


def test_a_query_that_is_stopped_while_it_parks_a_row_loses_no_letter_and_repeats_none(carry, tmp_path):
    point = tmp_path / "writer.parking"
    point.write_text("pause")
    carried = carry("dead-letter")
    until((tmp_path / "writer.parking.reached").exists)
    carried.query.ask_to_stop()
    point.unlink()
    carried.query.stop()
    carried.start()
    carried.until_position(5)
    assert carried.delivered() == [1, 2, 4, 5]
    assert [letter.change.position for letter in carried.state.letters("large")] == [3]


def test_a_row_that_is_too_large_is_dropped_and_counted_where_the_file_says_so(carry):
    carried = carry("drop")
    carried.until_position(5)
    assert carried.delivered() == [1, 2, 4, 5]
    until(lambda: carried.state.pipeline_state("large").dropped == 1)
    assert carried.state.letters("large") == []


def test_a_row_that_is_too_large_halts_once_everything_before_it_is_delivered(carry):
    carried = carry("halt")
    until(carried.query.was_stopped_inside)
    error = carried.state.pipeline_state("large").error
    assert error["code"] == "source.row-too-large"
    assert 'change 3 of t, key {"id":3}, has 600023 bytes, and source.max_row is 500KB' in error["message"]
    assert "set source.max_row to 1MiB, then run" in error["remedy"]
    assert carried.delivered() == [1, 2]
    assert carried.state.watermark("large", LANE).position == 2


@pytest.mark.parametrize("point", ["writer.parking", "writer.parked"])
def test_a_writer_killed_while_it_parks_loses_no_letter_and_repeats_none_and_no_file_is_left(carry, tmp_path, point):
    (tmp_path / point).write_text("kill")
    carried = carry("dead-letter")
    carried.until_position(5)
    assert not (tmp_path / point).exists(), "it was not killed"
    assert sorted(set(carried.delivered())) == [1, 2, 4, 5]
    assert [letter.change.position for letter in carried.state.letters("large")] == [3]
    assert list(tmp_path.glob("*.row-*")) == []


def test_the_search_for_a_change_that_an_expression_raises_on_ends_before_a_row_that_is_too_large(carry, spark):
    raises_on_large = Transform(where=f"length(after::string) < {LARGE} or raise_error('large')")
    carried = carry("halt", WHERE)
    until(carried.query.was_stopped_inside)
    trial = Trial(spark, raises_on_large)
    found = find(trial, replace(carried.query._spec, max_row=None))
    assert found.change.position == 3
    assert find(trial, replace(carried.query._spec, max_row=LIMIT)) is None


def test_a_letter_that_the_engine_is_lost_over_as_it_is_sent_again_is_an_error_with_a_code(spark, monkeypatch):
    monkeypatch.setattr(SparkSession, "_activeSession", spark)  # and put back: the next tests must not get this one
    gone, client = spark.newSession(), spark.sparkContext._gateway._gateway_client
    gone._jsparkSession = JavaObject("o999999999", client)  # an object that the JVM does not have, as after its end
    with pytest.raises(EngineFailed, match="Spark failed on change 3 of t"):
        put_through(Trial(gone, Transform(where=WHERE)), Change(3, Op.INSERT, "t", '{"id":3}', after='{"id":3}'))
