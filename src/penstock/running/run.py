"""Run pipelines: each in a thread, on one engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Event as Flag
from threading import Thread

from penstock.errors import EngineLost
from penstock.event import Event, Observer
from penstock.pipeline import Pipeline
from penstock.running.pipeline_run import PipelineRun
from penstock.spark.engine import Engine
from penstock.transform.user_function import function_of


def run(*pipelines: Pipeline, start: str | None = None, stop: Flag | None = None, observer: Observer | None = None) -> None:
    """Run these pipelines until `stop` is set; those in batch mode up to their present head.

    Raises the error of the first pipeline that halted, once all have ended.
    `start`: where a pipeline without a usable watermark begins: beginning, now, snapshot, or a position.
    """
    for pipeline in pipelines:
        function_of(pipeline)  # raises import errors before the start
    stop, report = stop or Flag(), observer or (lambda event: None)
    runs = [PipelineRun(pipeline, start, stop, report) for pipeline in pipelines]

    def on_event(event: Event) -> None:
        report(event)
        for each in runs:
            each.on_event(event)

    able = [each for each in runs if not each.has_nothing_to_do()]
    with ExitStack() as entered:
        for each in able:
            entered.enter_context(each.entered())
        able = [each for each in able if not each.is_refused()]
        if able and not stop.is_set():
            _carry_all(able, Engine([each.pipeline for each in able], on_event))
    if errors := [each.error for each in runs if each.error]:
        raise next((error for error in errors if isinstance(error, EngineLost)), errors[0])


def _carry_all(runs: Sequence[PipelineRun], engine: Engine) -> None:
    """Run all pipelines to their ends, each in a thread."""
    try:
        threads = [Thread(target=each.run, args=(engine,), name=f"pipeline {each.pipeline.name}", daemon=True) for each in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without a timeout would block signals
                thread.join(0.1)
    finally:
        engine.close()
