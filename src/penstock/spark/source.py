"""The pipeline as Spark sees it: one data source that reads an errand's source and writes to its sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from penstock.change import Lane
from penstock.spark.errand import Errand

if TYPE_CHECKING:
    import pyarrow as pa


class PenstockSource(DataSource):
    """`format("penstock")` with the option `errand`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The columns of the stream."""
        from penstock.spark.rows import DDL

        return DDL

    def streamReader(self, schema: Any) -> LiveReader:
        """The reading side."""
        return LiveReader(self.options["errand"])

    def streamWriter(self, schema: Any, overwrite: bool) -> LiveWriter:
        """The delivering side."""
        return LiveWriter(self.options["errand"])


class LanePartition(InputPartition):
    """One lane, for one epoch."""

    def __init__(self, lane: Lane) -> None:
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
        return [LanePartition(lane) for lane in Errand.decode(self.errand).pipeline.source.lanes()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Follow a lane for the length of an epoch."""
        from penstock.spark.reader import follow

        assert isinstance(partition, LanePartition)
        return follow(Errand.decode(self.errand), partition.lane)


class LiveWriter(DataSourceStreamArrowWriter):
    """Delivers while the epoch is open."""

    def __init__(self, errand: str) -> None:
        self.errand = errand

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver what comes. The end of the input proves nothing; positions do."""
        from penstock.spark.writer import deliver

        deliver(Errand.decode(self.errand), iterator)
        return WriterCommitMessage()
