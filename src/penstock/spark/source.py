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

    from penstock.spark.request import Request
    from penstock.spark.task_spec import TaskSpec


class PenstockSource(DataSource):
    """`format("penstock")`: with the option `spec` a query of ours, otherwise somebody's who has named a pipeline file."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.request = None if "spec" in options else _request(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns: those of a change, and in our own queries those of their encoding."""
        if self.request is None:
            return planned(self.options["spec"]).ddl
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
        return readers[planned(self.options["spec"]).way](self.options["spec"])

    def streamWriter(self, schema: Any, overwrite: bool) -> LiveWriter:
        """The delivering side, for our own queries only."""
        if self.request:
            raise ConfigInvalid('format("penstock") can only be read', "deliver with `penstock run`, or write to another format")
        return LiveWriter(self.options["spec"])


def _request(options: Mapping[str, str]) -> Request:
    from penstock.spark.request import parse

    return parse(options)


class LanePartition(InputPartition):
    """One lane, for one epoch or batch."""

    def __init__(self, lane: str) -> None:
        self.lane = lane


class LaneReader(DataSourceStreamReader):
    """A query of Penstock's own: one task for each lane."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a lane."""
        from penstock.change import Lane
        from penstock.spark.reader import read

        assert isinstance(partition, LanePartition)
        return read(_decoded(self.spec), Lane(partition.lane))


class LiveReader(LaneReader):
    """Offsets name epochs, not positions: an epoch begins at the watermark, also when Spark repeats it."""

    def initialOffset(self) -> dict[str, int]:
        """Before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The next epoch, whatever there is to read."""
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task for each lane."""
        return [LanePartition(lane) for lane in planned(self.spec).lanes]


class BatchReader(LaneReader, SupportsTriggerAvailableNow):
    """One batch from the watermark to the target; a task that Spark repeats begins at the watermark, not at the offset."""

    def prepareForTriggerAvailableNow(self) -> None:
        """The target was set before the query began."""

    def initialOffset(self) -> dict[str, str]:
        """Where every lane stands."""
        spec = _decoded(self.spec)
        assert isinstance(spec.target, Mapping)
        marks = {lane: spec.pipeline.state.watermark(spec.pipeline.name, lane) for lane in spec.target}
        return {lane: mark.cursor for lane, mark in marks.items() if mark}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """The target of every lane that has not reached it."""
        from penstock.batch_target import covers
        from penstock.change import Lane
        from penstock.cursor import Cursor

        spec = _decoded(self.spec)
        source, target = spec.pipeline.source, spec.target
        assert isinstance(target, Mapping)
        return {lane: at if covers(source, Cursor(at), target[Lane(lane)]) else target[Lane(lane)] for lane, at in start.items()}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task for each lane that has something to read: a sink takes a lane in order."""
        return [LanePartition(lane) for lane in end if start[lane] != end[lane]]


class RangesReader(BatchReader):
    """One batch of ranges, each a task; Spark reads as many of them at a time as it has slots."""

    def initialOffset(self) -> dict[str, str]:
        """Before the rows."""
        return {}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """Behind the rows: no range is left where it began."""
        from penstock.backfill import Backfill

        target = _decoded(self.spec).target
        assert isinstance(target, Backfill)
        return dict.fromkeys(target.ranges, "read")

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task for each range."""
        return [LanePartition(lane) for lane in end]


def _decoded(spec: str) -> TaskSpec:
    from penstock.spark.task_spec import TaskSpec

    return TaskSpec.decode(spec)


class LiveWriter(DataSourceStreamArrowWriter):
    """Delivers while the epoch is open."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver what comes. The end of the input proves nothing; positions do."""
        from penstock.spark.writer import deliver

        deliver(_decoded(self.spec), iterator)
        return WriterCommitMessage()
