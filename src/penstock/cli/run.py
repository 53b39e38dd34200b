"""`penstock run`: run pipelines until stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli.log import LogFormat, lines, log_to
from penstock.errors import ConfigInvalid, EngineLost, EngineMemory
from penstock.event import Event, Observer

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

_REBORN = "PENSTOCK_REBORN"
_LEAST_LIFE = {EngineLost: 60.0, EngineMemory: 600.0}
"""Seconds that a process must have run for an automatic restart; memory is exhausted only after minutes."""


LogOption = Annotated[LogFormat, typer.Option("--log-format", help="Write the process log as text or as JSON.")]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="[HOST:]PORT", envvar="PENSTOCK_METRICS", help="Serve /metrics for Prometheus, and /healthz."
    ),
]


def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pipeline files; they share one Spark session.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION|beginning|now|snapshot",
            help="Where to start a new pipeline, or continue after state.lost, source.rewound, source.pruned, "
            "source.row-too-large, capture.broken, capture.damaged or transform.invalid. Ignored otherwise: see penstock rewind.",
        ),
    ] = None,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Deliver the changes up to the current head, then exit: `mode: batch` for all files."),
    ] = False,
    log_format: LogOption = LogFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log events of level debug.")] = False,
    *,
    metrics: MetricsOption = None,
) -> None:
    """Run pipelines until Ctrl-C or SIGTERM; delivered changes are recorded before the exit.

    A second process on the same pipeline stands by and takes over within two seconds. With `mode: batch` in a file, or
    --available-now, a pipeline ends with exit code 0 when all changes up to the head at its start are delivered, by any process.

    Examples: `penstock run orders.yaml --metrics 9464`, `penstock run orders.yaml --available-now`
    """
    with lines(log_format) as stream:
        pipelines = [penstock.load(path) for path in files]
        if len({pipeline.name for pipeline in pipelines}) < len(pipelines):
            raise ConfigInvalid("two of the files have the same pipeline name", "give each pipeline its own name")
        if available_now:
            pipelines = [replace(pipeline, mode="batch") for pipeline in pipelines]
        has_ended = carry_until_stopped(pipelines, start, metrics, log_to(stream, log_format, verbose))
    if not has_ended:
        begin_anew()


def carry_until_stopped(pipelines: list[Pipeline], start: str | None, metrics: str | None, write: Observer) -> bool:
    """Run pipelines until a signal; False if the JVM died and the program must restart."""
    began, stop, observers = time.monotonic(), Flag(), [write]
    with stopping_on_signals(stop), ExitStack() as stage:
        if metrics:
            from penstock.metrics.server import serving

            observers.insert(0, stage.enter_context(serving(pipelines, metrics)))

        def emit(event: Event) -> None:
            for observe in observers:
                observe(event)

        try:
            penstock.run(*pipelines, start=start, stop=stop, observer=emit)
        except EngineLost as error:
            if stop.is_set():
                return True
            _refuse_again(error, time.monotonic() - began)
            return False
    return True


@contextmanager
def stopping_on_signals(stop: Flag) -> Iterator[None]:
    """SIGINT and SIGTERM set the flag; a second signal ends the process at once."""

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_again(error: EngineLost, lived: float) -> None:
    """Raise the error if a restarted process has lost its JVM again after a short time."""
    least = _LEAST_LIFE[type(error)]
    if lived < least and os.environ.get(_REBORN):
        remedy = error.remedy if isinstance(error, EngineMemory) else "see spark.log and spark.err in the cache folder"
        raise type(error)(f"twice within {least / 60:g} min: {error.message}", remedy)


def begin_anew() -> None:
    """Replace this process by a new run of the program: a process cannot start a second JVM."""
    os.environ[_REBORN] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])
