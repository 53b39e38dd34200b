"""Debezium's embedded engine, as a user of Python has it: a handler that posts each batch it is given."""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from pydbzengine import BasePythonChangeHandler, ChangeEvent, DebeziumEngine

DEFAULT = {
    "name": "engine",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
}
# What its documents advise for lateness and throughput. Offsets are flushed once a minute by default: that costs it least.
TUNED = {
    "poll.interval.ms": "10",
    "max.batch.size": "2048",
    "max.queue.size": "16384",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "converter.schemas.enable": "false",
    "snapshot.mode": "no_data",
}


def properties(folder: Path, port: int, is_tuned: bool) -> dict[str, str]:
    """Of the engine."""
    database = {"hostname": "127.0.0.1", "port": str(port), "user": "postgres", "password": "postgres", "dbname": "postgres"}
    place = {f"database.{name}": value for name, value in database.items()}
    return {**DEFAULT, **place, "offset.storage.file.filename": str(folder / "offsets"), **(TUNED if is_tuned else {})}


class Post(BasePythonChangeHandler):  # type: ignore[misc]
    """Each batch is a request, on a connection that stays open."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc)

    def handleJsonBatch(self, records: list[ChangeEvent]) -> None:
        body = f"[{','.join(str(record.value()) for record in records)}]"
        self._connection.request("POST", "/", body.encode(), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"answered {answer.status}")


def main(settings: dict[str, Any]) -> None:
    """Until standard input ends: Java takes the signals for itself."""
    engine = DebeziumEngine(properties=settings["properties"], handler=Post(settings["url"]))
    running = Thread(target=engine.run)
    running.start()
    sys.stdin.read()
    engine.close()
    running.join()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
