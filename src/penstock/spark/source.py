"""Penstock as Spark sees it: one data source, for our own queries and for those of other people.

Each query has five processes that import this module and only plan, so the rest is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from penstock.errors import ConfigInvalid, EngineFailed
from penstock.spark.plan import planned

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.errand import Errand
    from penstock.spark.request import Request


class PenstockSource(DataSource):
    """`format("penstock")`: with the option `errand` a query of ours, otherwise somebody's who has named a pipeline file."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.request = None if "errand" in options else _request(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns: those of a change, and in our own queries those of their form."""
        if self.request is None:
            return planned(self.options["errand"]).ddl
        from penstock.spark.rows import CHANGE_DDL

        return CHANGE_DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """Changes up to now."""
        from penstock.spark.changes import ChangeBatch

        if self.request is None:
            raise EngineFailed("a query of Penstock's own is a stream")
        return ChangeBatch(self.request)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Changes as they come."""
        if self.request:
            from penstock.spark.changes import ChangeStream

            return ChangeStream(self.request)
        readers = {"live": LiveReader, "batch": BatchReader, "ranges": RangesReader}
        return readers[planned(self.options["errand"]).way](self.options["errand"])

    def streamWriter(self, schema: Any, overwrite: bool) -> LiveWriter:
        """The delivering side, for our own queries only."""
        if self.request:
            raise ConfigInvalid('format("penstock") can only be read', "deliver with `penstock run`, or write to another format")
        return LiveWriter(self.options["errand"])


def _request(options: Mapping[str, str]) -> Request:
    from penstock.spark.request import parse

    return parse(options)


class LanePartition(InputPartition):
    """One lane, for one epoch or batch."""

    def __init__(self, lane: str) -> None:
        self.lane = lane


class LiveReader(DataSourceStreamReader):
    """Offsets name epochs, not positions: where an epoch begins is the watermark's to say, also when Spark repeats it."""

    def __init__(self, errand: str) -> None:
        self.errand = errand

    def initialOffset(self) -> dict[str, int]:
        """Before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The next epoch, whatever there is to read."""
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task for each lane."""
        return [LanePartition(lane) for lane in planned(self.errand).lanes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Follow a lane for the length of an epoch."""
        return _read(self.errand, partition)


class BatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One batch from the watermark to the goal; a task that Spark repeats begins at the watermark, not at the offset."""

    def __init__(self, errand: str) -> None:
        self.errand = errand

    def prepareForTriggerAvailableNow(self) -> None:
        """The goal was set before the query began."""

    def initialOffset(self) -> dict[str, str]:
        """Where every lane stands."""
        pipeline = _decoded(self.errand).pipeline
        marks = {lane: pipeline.state.watermark(pipeline.name, lane) for lane in pipeline.source.lanes()}
        return {lane: mark.cursor for lane, mark in marks.items() if mark}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """The goal of every lane that has not reached it."""
        from penstock.change import Lane
        from penstock.cursor import Cursor
        from penstock.goal import covers

        errand = _decoded(self.errand)
        source, goal = errand.pipeline.source, errand.goal
        assert isinstance(goal, Mapping)
        return {lane: at if covers(source, Cursor(at), goal[Lane(lane)]) else goal[Lane(lane)] for lane, at in start.items()}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task for each lane that has something to read: a sink takes a lane in order."""
        return [LanePartition(lane) for lane in end if start[lane] != end[lane]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a lane up to the goal."""
        return _read(self.errand, partition)


class RangesReader(BatchReader):
    """One batch of ranges, each a task; Spark reads as many of them at a time as it has slots."""

    def initialOffset(self) -> dict[str, str]:
        """Before the rows."""
        return {}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """Behind the rows: no range is left where it began."""
        from penstock.backfill import Backfill

        goal = _decoded(self.errand).goal
        assert isinstance(goal, Backfill)
        return dict.fromkeys(goal.ranges, "read")

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task for each range."""
        return [LanePartition(lane) for lane in end]


def _read(errand: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from penstock.change import Lane
    from penstock.spark.reader import read

    assert isinstance(partition, LanePartition)
    return read(_decoded(errand), Lane(partition.lane))


def _decoded(errand: str) -> Errand:
    from penstock.spark.errand import Errand

    return Errand.decode(errand)


class LiveWriter(DataSourceStreamArrowWriter):
    """Delivers while the epoch is open."""

    def __init__(self, errand: str) -> None:
        self.errand = errand

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver what comes. The end of the input proves nothing; positions do."""
        from penstock.spark.writer import deliver

        deliver(_decoded(self.errand), iterator)
        return WriterCommitMessage()
