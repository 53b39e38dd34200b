"""A sink that notes how late each change came, in milliseconds."""

from __future__ import annotations

import json
import time

import pyarrow as pa

from penstock.settings import settings
from penstock.sink import Assignment, Sink
from penstock.sinks.discard.sink import DiscardDelivery


@settings
class LatenessSink(Sink):
    path: str

    def open(self, assignment: Assignment) -> LatenessDelivery:
        return LatenessDelivery(self.path)


class LatenessDelivery(DiscardDelivery):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path, self._late = path, []

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        self._late += lateness(changes)
        return super().offer(changes, wait)

    def close(self) -> None:
        append(self._path, self._late)


def lateness(changes: pa.RecordBatch) -> list[float]:
    now = time.time() * 1e6
    return [(now - made) / 1000 for made in changes.column("at").cast(pa.int64()).to_pylist()]


def append(path: str, late: list[float]) -> None:
    with open(path, "a") as out:
        out.write(json.dumps(late) + "\n")
