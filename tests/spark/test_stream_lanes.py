"""A stream of a PySpark user over a source whose lanes appear and end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable

from deadline import until
from many_lanes import LanesSource
from penstock.errors import SourcePruned
from penstock.spark.changes import ChangeStream
from penstock.spark.request import Request
from penstock.spark.rows import CHANGE_DDL


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lanes").mkdir()
    made = LanesSource(folder=str(tmp_path / "lanes"))
    made.write("a", 0, 5)
    return made


class Checkpoint:
    """What Spark asks of a stream, with the offsets as text between two batches; each batch has another reader."""

    def __init__(self, source, start="beginning"):
        self._request = Request(source, {}, start)
        self.text = json.dumps(self._reader().initialOffset())

    def _reader(self, is_last_run=False):
        made = ChangeStream(self._request)
        if is_last_run:
            made.prepareForTriggerAvailableNow()
        return made

    def batch(self):
        """The positions of the next batch."""
        before, self.text = self.text, json.dumps(self._reader().latestOffset(json.loads(self.text), ReadAllAvailable()))
        found = self.rows(before, self.text)
        assert self.rows(before, self.text) == found, "a repeated batch is the same"
        return found

    def rows(self, start, end):
        reader = self._reader()
        batches = [batch for piece in reader.partitions(json.loads(start), json.loads(end)) for batch in reader.read(piece)]
        return sorted(position for batch in batches for position in batch.column(0).to_pylist())

    def run(self):
        """The positions up to where the source ends when this begins; then Spark sees that there is nothing new."""
        reader, found = self._reader(is_last_run=True), []
        while (end := json.dumps(reader.latestOffset(json.loads(self.text), ReadAllAvailable()))) != self.text:
            found += self.rows(self.text, end)
            self.text = end
        return found


def test_a_lane_that_appears_is_read_from_its_beginning_wherever_the_stream_began(source):
    stream = Checkpoint(source, "now")
    source.write("b", 1000, 1003)
    assert stream.batch() == [], "the checkpoint has the beginning before the lane is read"
    source.write("a", 0, 6)
    assert stream.batch() == [6, 1001, 1002, 1003]


def test_a_lane_that_appeared_since_the_last_run_is_read_and_one_that_appears_meanwhile_waits(source):
    stream = Checkpoint(source)
    assert stream.run() == [1, 2, 3, 4, 5]
    source.write("b", 1000, 1003, has_ended=True)
    assert stream.run() == [1001, 1002, 1003]
    assert stream.run() == []


def test_a_lane_that_has_ended_is_read_to_its_end_and_left_out_afterwards(source):
    stream = Checkpoint(source)
    source.write("a", 0, 7, has_ended=True)
    source.write("b", 1000, 1003)
    assert stream.batch() == [1, 2, 3, 4, 5, 6, 7]
    assert stream.batch() == [1001, 1002, 1003], "the lane is listed still, and not read once more"
    Path(source.folder, "a.lane").unlink()
    source.write("b", 1000, 1004)
    assert stream.batch() == [1004]
    assert json.loads(stream.text).keys() == {"b"}


def test_a_lane_that_is_gone_before_it_was_read_to_its_end_is_an_error(source):
    stream = Checkpoint(source)
    assert stream.batch() == [1, 2, 3, 4, 5]
    source.write("b", 1000, 1003)
    Path(source.folder, "a.lane").unlink()
    with pytest.raises(SourcePruned, match="lane a is no longer in the source"):
        stream.batch()


def test_a_query_of_spark_follows_lanes_that_appear_and_end(spark, source, tmp_path):
    class Lanes(DataSource):
        @classmethod
        def name(cls):
            return "lanes"

        def schema(self):
            return CHANGE_DDL

        def streamReader(self, schema):
            return ChangeStream(Request(LanesSource(folder=self.options["path"]), {}, "beginning"))

    session = spark.newSession()
    session.dataSource.register(Lanes)
    writing = session.readStream.format("lanes").load(source.folder).writeStream.format("memory").queryName("lanes_seen")
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def seen():
        assert query.isActive, query.exception()
        return sorted(row.position for row in session.table("lanes_seen").collect())

    try:
        until(lambda: seen() == [1, 2, 3, 4, 5])
        source.write("b", 1000, 1003)
        until(lambda: seen() == [1, 2, 3, 4, 5, 1001, 1002, 1003])
        source.write("a", 0, 7, has_ended=True)
        until(lambda: 7 in seen())
        Path(source.folder, "a.lane").unlink()
        source.write("b", 1000, 1004)
        until(lambda: 1004 in seen())
        assert seen() == [*range(1, 8), *range(1001, 1005)]
    finally:
        query.stop()
