"""The engine of all harvests of a process: started with the first harvest, ended with the process."""

from __future__ import annotations

import atexit
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
_observers: dict[str, Observer] = {}


def join(name: str, pipeline: Pipeline, emit: Observer) -> Engine:
    """The engine; the observer receives the events of its workers until `leave`. Raises EngineSlots."""
    global _engine  # noqa: PLW0603 - a process can start one JVM only
    with _lock:
        if len(_observers) >= SLOTS:
            raise EngineSlots(f"{SLOTS} harvests run in this process already", "run more of them in another process")
        if _engine and (lost := _engine.lost()):
            raise lost
        if _engine is None:
            settings = replace(pipeline.spark, master=pipeline.spark.master or f"local[{SLOTS},4]")
            _engine = Engine([replace(pipeline, spark=settings)], _emit)
            atexit.register(_engine.close)
        _observers[name] = emit
        return _engine


def leave(name: str) -> None:
    """Remove the observer; the engine stays ready for the next harvest."""
    with _lock:
        _observers.pop(name, None)


def _emit(event: Event) -> None:
    for emit in list(_observers.values()):
        emit(event)
