"""The Spark of one process: a session, a folder for signals, and the events of workers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from threading import Lock, Thread, Timer
from typing import Any, TypeVar

from penstock import registry
from penstock.change import Lane
from penstock.errors import ConfigInvalid, EngineLost
from penstock.event import Observer
from penstock.pipeline import Pipeline, SparkSettings
from penstock.progress.backfill import Backfill
from penstock.progress.batch_target import Target
from penstock.spark import training
from penstock.spark.daemon import MODULES
from penstock.spark.query import Query, engine_lost
from penstock.spark.session import close_session, open_session, require_slots
from penstock.spark.task_spec import Events
from penstock.spark.warmup import warm
from penstock.spark.workplace import workplace

T = TypeVar("T")

TRAINING_SECONDS = 60.0
"""The age at which a run creates the class archive for the next one."""

LOOK_SECONDS = 0.1
"""Interval of the checks whether to continue waiting for the warm-up of another pipeline."""


class Engine:
    """The session of all pipelines of a process."""

    def __init__(self, pipelines: Sequence[Pipeline], emit: Observer) -> None:
        self._pipelines, self._slots = pipelines, lane_count(pipelines)
        os.environ[MODULES] = ",".join(modules(pipelines))
        with ExitStack() as opened:
            self._folder = opened.enter_context(workplace())
            events = Events(self._folder)
            listening = Thread(target=_listen, args=(events, emit), name="events of workers", daemon=True)
            listening.start()
            opened.callback(listening.join)
            opened.callback(events.close)
            self._spark: Any = open_session(self._slots, common_settings(pipelines), self._folder)
            opened.callback(close_session, self._spark)
            self._opened = opened.pop_all()
        self._warming, self._is_warm = Lock(), False
        self._trainer: subprocess.Popen[bytes] | None = None
        self._training = Timer(TRAINING_SECONDS, self._train)
        self._training.daemon = True
        self._training.start()

    def query(self, pipeline: Pipeline, target: Target | Backfill | None, lanes: Collection[Lane]) -> Query:
        """A query, not yet started, for these lanes of a pipeline; with a target it ends there. Raises EngineSlots."""
        if (needed := lane_count(self._pipelines)) > self._slots:
            require_slots(self._spark, needed)
        return Query(self._spark, pipeline, self._folder, target, lanes)

    def warm(self, is_enough: Callable[[], bool]) -> None:
        """Prepare the session, so that the next query starts in about a second; returns early once `is_enough`."""
        while not is_enough():
            if self._warming.acquire(timeout=LOOK_SECONDS):
                try:
                    if not self._is_warm:
                        warm(self._spark, self._folder, is_enough)
                        self._is_warm = True
                finally:
                    self._warming.release()
                return

    def lost(self) -> EngineLost | None:
        """The error of a JVM that has ended."""
        return engine_lost(self._spark)

    def close(self) -> None:
        """Stop Spark and all its processes."""
        self._training.cancel()
        self._training.join()  # it may be starting the trainer
        if self._trainer:
            training.end(self._trainer)
        self._opened.close()

    def _train(self) -> None:
        self._trainer = training.train_beside(self._folder)


def _listen(events: Events, emit: Observer) -> None:
    for event in events:
        emit(event)


def lane_count(pipelines: Sequence[Pipeline]) -> int:
    """The current number of lanes of these pipelines."""
    return sum(len(pipeline.source.lanes()) for pipeline in pipelines)


def modules(pipelines: Sequence[Pipeline]) -> list[str]:
    """The modules of the parts of these pipelines, and those that their kinds name: slow imports are done once, in the daemon."""
    found = {type(part).__module__ for one in pipelines for part in (one.source, one.sink, one.state)}
    with suppress(ConfigInvalid):  # a package that none of these pipelines uses may be broken
        found.update(name for one in pipelines for _, kind in registry.parts(one) if kind for name in kind.imports)
    return sorted(found)


def common_settings(pipelines: Sequence[Pipeline]) -> SparkSettings:
    """The Spark settings of pipelines that share a session. Raises ConfigInvalid if they contradict each other."""
    config: dict[str, str] = {}
    for pipeline in pipelines:
        for key, value in pipeline.spark.config.items():
            if config.setdefault(key, value) != value:
                raise ConfigInvalid(f"spark.config.{key} differs between the pipelines", "run them as separate processes")
    of_all = [pipeline.spark for pipeline in pipelines]
    master, memory = _common("master", [one.master for one in of_all]), _common("memory", [one.memory for one in of_all])
    return SparkSettings(master=master, memory=memory, config=config)


def _common(key: str, values: Iterable[T | None]) -> T | None:
    given = dict.fromkeys(value for value in values if value is not None)
    if len(given) > 1:
        raise ConfigInvalid(
            f"spark.{key} differs between the pipelines: {', '.join(sorted(map(str, given)))}", "run them as separate processes"
        )
    return next(iter(given), None)
