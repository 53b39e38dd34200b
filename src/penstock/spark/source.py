"""The data source of Spark, for queries of Penstock and of users.

Five processes of each query import this module only to plan, so that other modules are imported at their use.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
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


class PenstockSource(DataSource):
    """`format("penstock")`: with the option `spec` a query of Penstock, otherwise of a user, who names a pipeline file."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.request: Request | None = None
        if "spec" not in options:
            from penstock.spark.request import parse

            self.request = parse(options)

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
        readers = {"live": LiveReader, "batch": BatchReader}
        return readers[planned(self.options["spec"]).way](self.options["spec"])

    def streamWriter(self, schema: Any, overwrite: bool) -> LiveWriter:
        """The write half, for queries of Penstock only."""
        if self.request:
            raise ConfigInvalid('format("penstock") can only be read', "deliver with `penstock run`, or write to another format")
        return LiveWriter(self.options["spec"])


class LiveReader(DataSourceStreamReader):
    """Offsets name epochs, not positions: an epoch begins at the watermark, also when Spark repeats it."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def initialOffset(self) -> dict[str, int]:
        """The offset before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The next epoch, with or without changes."""
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task for each lane, since a sink accepts a lane in order."""
        return [InputPartition(lane) for lane in planned(self.spec).lanes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a lane."""
        from penstock.spark.reader import read
        from penstock.spark.task_spec import TaskSpec

        return read(TaskSpec.decode(self.spec), partition.value)


class BatchReader(LiveReader, SupportsTriggerAvailableNow):
    """One epoch, from the watermarks to the target; none if no lane has changes to read."""

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the target was set before the query started."""

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The only epoch: Spark ends the query at an unchanged offset."""
        return {"epoch": 1} if planned(self.spec).lanes else start


class LiveWriter(DataSourceStreamArrowWriter):
    """The writer of a query of Penstock, which delivers while the epoch is open."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver the rows. The end of the input proves no progress; positions do."""
        from penstock.spark.task_spec import TaskSpec
        from penstock.spark.writer import deliver

        deliver(TaskSpec.decode(self.spec), iterator)
        return WriterCommitMessage()
