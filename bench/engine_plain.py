"""One run of the same work as plain micro-batches, with everything at its default."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from bench.engine import RATE, SECONDS, SIZE, WHERE
from bench.lateness import append, lateness
from penstock.change import CHANGES, NO_CHANGES
from penstock.source import ANONYMOUS, Span
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.rows import DDL as ROWS_DDL

DDL = ROWS_DDL.removesuffix(", mark string")


class Piece(InputPartition):
    def __init__(self, after: str, upto: str) -> None:
        self.after, self.upto = after, upto


class Reader(DataSourceStreamReader):
    def __init__(self, source: SyntheticSource) -> None:
        self.source = source

    def initialOffset(self) -> dict[str, str]:
        return {"cursor": self.source.begin(LANE, "beginning")}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, str]:
        return {"cursor": self.source.head(LANE)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        return [Piece(start["cursor"], end["cursor"])]

    def read(self, partition: Piece) -> Iterator[pa.RecordBatch]:
        yield NO_CHANGES  # a stream without a single batch is an error to its writer
        yield from self.source.read(Span(LANE, partition.after, partition.upto), ANONYMOUS)


class Writer(DataSourceStreamArrowWriter):
    def __init__(self, out: str) -> None:
        self.out = out

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        append(self.out, [late for batch in iterator for late in lateness(batch)])
        return WriterCommitMessage()


class Plain(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: Any) -> Reader:
        return Reader(SyntheticSource(rate=RATE, size=SIZE, total=RATE * SECONDS, origin=float(self.options["origin"])))

    def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
        return Writer(self.options["out"])


def main(out: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.dataSource.register(Plain)
    _carry(spark, out + ".warm-up", time.time() - SECONDS, 5)
    _carry(spark, out, time.time() + 3, SECONDS + 4)
    spark.stop()


def _carry(spark: SparkSession, out: str, origin: float, seconds: float) -> None:
    changes = spark.readStream.format("plain").option("origin", origin).load()
    seen = changes.selectExpr(*[f"{name} as _{name}" if name == "after" else name for name in CHANGES.names])
    seen = seen.selectExpr("*", "try_parse_json(_after) as after").where(WHERE).drop("after").withColumnRenamed("_after", "after")
    with tempfile.TemporaryDirectory() as folder:
        query = (
            seen.select(*CHANGES.names).writeStream.format("plain").option("out", out).option("checkpointLocation", folder).start()
        )
        query.awaitTermination(seconds)
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1])
