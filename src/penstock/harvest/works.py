"""The engine of all harvests of a process: started with the first harvest, ended with the process."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from penstock.errors import EngineSlots
from penstock.event import Event, Observer
from penstock.pipeline import Pipeline
from penstock.spark.engine import Engine

SLOTS = 16
"""The number of concurrent harvests: each uses one task slot."""

_lock = Lock()
_engine: Engine | None = None
_observers: list[Observer] = []


@contextmanager
def joined(pipeline: Pipeline, emit: Observer) -> Iterator[Engine]:
    """The engine, whose workers report their events to this observer; it stays ready for the next harvest. Raises EngineSlots."""
    with _lock:
        engine = _started(pipeline)
        _observers.append(emit)
    try:
        yield engine
    finally:
        with _lock:
            _observers.remove(emit)


def _started(pipeline: Pipeline) -> Engine:
    global _engine  # noqa: PLW0603 - a process can start one JVM only
    if len(_observers) >= SLOTS:
        raise EngineSlots(f"{SLOTS} harvests run in this process already", "run more of them in another process")
    if _engine and (lost := _engine.lost()):
        raise lost
    if _engine is None:
        settings = replace(pipeline.spark, master=pipeline.spark.master or f"local[{SLOTS},4]")
        _engine = Engine([replace(pipeline, spark=settings)], _emit)
        atexit.register(_engine.close)
    return _engine


def _emit(event: Event) -> None:
    for emit in list(_observers):
        emit(event)
