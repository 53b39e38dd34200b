"""Spark's plain micro-batches, everything at its default: the log of the database as a stream, and `foreachBatch` that posts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession

from penstock.spark import register


def post(url: str) -> Callable[[DataFrame, int], None]:
    """Each batch is a request, on a connection that stays open."""
    connection = HTTPConnection(urlsplit(url).netloc)

    def send(batch: DataFrame, number: int) -> None:
        changes = batch.select("position", "op", "table", "after").toArrow().sort_by("position")
        if not changes.num_rows:
            return
        connection.request("POST", "/", _body(changes).encode(), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"answered {answer.status}")

    return send


def _body(changes: Any) -> str:
    """`after` is JSON already."""
    columns = zip(*(changes[name].to_pylist() for name in ("position", "op", "table", "after")), strict=True)
    changed = (f'{{"position":{position},"op":"{op}","table":"{table}","after":{after}}}' for position, op, table, after in columns)
    return f"[{','.join(changed)}]"


def main(settings: dict[str, Any]) -> None:
    """Until standard input ends, or the query fails."""
    spark = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
    register(spark)
    changes = spark.readStream.format("penstock").option("pipeline", settings["pipeline"]).load()
    query = changes.writeStream.foreachBatch(post(settings["url"])).option("checkpointLocation", settings["checkpoint"]).start()
    Thread(target=lambda: sys.stdin.read() or query.stop(), daemon=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
