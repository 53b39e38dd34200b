"""The data source of Spark, for queries of Penstock and of users.

Five processes of each query import this module only to plan, so that other modules are imported at their use.
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
    """`format("penstock")`: with the option `spec` a query of Penstock, otherwise of a user, who names a pipeline file."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.request = None if "spec" in options else _request(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns of a change, and in queries of Penstock those of their encoding."""
        if self.request is None:
            return planned(self.options["spec"]).ddl
        from penstock.spark.rows import CHANGE_DDL

        return CHANGE_DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """The changes up to now."""
        from penstock.spark.changes import ChangeBatch

        if self.request is None:
            raise EngineFailed("a query with the option spec must be a stream")
        return ChangeBatch(self.request)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The stream of changes."""
        if self.request:
            from penstock.spark.changes import ChangeStream

            return ChangeStream(self.request)
        readers = {"live": LiveReader, "batch": BatchReader, "ranges": RangesReader}
        return readers[planned(self.options["spec"]).way](self.options["spec"])

    def streamWriter(self, schema: Any, overwrite: bool) -> LiveWriter:
        """The write half, for queries of Penstock only."""
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
    """The reader of a query of Penstock: one task for each lane."""

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
        """The offset before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The next epoch, with or without changes."""
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task for each lane."""
        return [LanePartition(lane) for lane in planned(self.spec).lanes]


class BatchReader(LaneReader, SupportsTriggerAvailableNow):
    """One batch from the watermark to the target; a task that Spark repeats begins at the watermark, not at the offset."""

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the target was set before the query started."""

    def initialOffset(self) -> dict[str, str]:
        """The watermark of every lane."""
        spec = _decoded(self.spec)
        assert isinstance(spec.target, Mapping)
        marks = {lane: spec.pipeline.state.watermark(spec.pipeline.name, lane) for lane in spec.target}
        return {lane: mark.cursor for lane, mark in marks.items() if mark}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """The target of every lane, or its watermark if that is later."""
        from penstock.change import Lane
        from penstock.cursor import Cursor
        from penstock.progress.batch_target import covers

        spec = _decoded(self.spec)
        source, target = spec.pipeline.source, spec.target
        assert isinstance(target, Mapping)
        return {lane: at if covers(source, Cursor(at), target[Lane(lane)]) else target[Lane(lane)] for lane, at in start.items()}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task for each lane with changes to read, since a sink accepts a lane in order."""
        return [LanePartition(lane) for lane in end if start[lane] != end[lane]]


class RangesReader(BatchReader):
    """One batch of ranges, with a task for each; Spark reads as many at a time as it has slots."""

    def initialOffset(self) -> dict[str, str]:
        """The offset before the rows."""
        return {}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        """The offset after the rows of all ranges."""
        from penstock.progress.backfill import Backfill

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
    """The writer of a query of Penstock, which delivers while the epoch is open."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver the rows. The end of the input proves no progress; positions do."""
        from penstock.spark.writer import deliver

        deliver(_decoded(self.spec), iterator)
        return WriterCommitMessage()
