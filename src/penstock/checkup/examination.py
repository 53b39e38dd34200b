"""All checks in order, for the machine and for each pipeline file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.checkup import brokers, capture, endpoint, machine, outbox, standing
from penstock.checkup.finding import Check, Finding, examined, ok
from penstock.checkup.room import disk
from penstock.checkup.secrecy import secrets
from penstock.checkup.secrecy import state as state_file
from penstock.config import load
from penstock.coordinators.sqlite import SqliteCoordinator
from penstock.importing import try_out
from penstock.pipeline import Pipeline
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.webhook import WebhookSink
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.outbox.source import OutboxSource
from penstock.sources.sqlite.source import SqliteSource


def examine_machine() -> Iterator[Finding]:
    """What every pipeline needs."""
    for name, check in machine.checks().items():
        yield from examined(name, check)


def examine(files: Sequence[Path], *, probes: bool = False, deep: bool = False) -> Iterator[Finding]:
    """What these pipelines need, as it is found."""
    pipelines: dict[str, Pipeline] = {}
    for file in files:
        yield from examined("file", partial(_loaded, file, pipelines), str(file))
        if pipeline := pipelines.get(str(file)):
            for name, check in checks(file, pipeline, probes=probes).items():
                yield from examined(name, check, str(file))
    if deep:
        yield from examined("engine", partial(_tried, pipelines))


def checks(file: Path, pipeline: Pipeline, *, probes: bool = False) -> Mapping[str, Check]:
    """What a pipeline's parts need, by name."""
    source, sink, found = pipeline.source, pipeline.sink, dict[str, Check]()
    found["secrets"] = partial(secrets, file, sink.tls.key if isinstance(sink, WebhookSink) else None)
    if pipeline.transform.function:
        found["function"] = partial(_function, pipeline)
    if isinstance(source, SqliteSource):
        found["database"] = partial(capture.database, source)
        found["capture"] = partial(capture.capture, source)
        found["log"] = partial(capture.log, source)
        found["clock"] = partial(capture.clock, source)
        found["disk"] = partial(disk, [Path(source.database), Path(getattr(pipeline.state, "path", "."))])
    if isinstance(source, OutboxSource):
        found["outbox"] = partial(outbox.outbox, source)
        found["space"] = partial(outbox.space, source)
    if isinstance(source, MarkSource):
        found["outbox"] = partial(outbox.marked, source)
    if isinstance(pipeline.state, SqliteCoordinator):
        found["state file"] = partial(state_file, Path(pipeline.state.path))
    found["state"] = partial(standing.state, pipeline)
    found["leader"] = partial(standing.leader, pipeline)
    if isinstance(sink, WebhookSink):
        found["endpoint"] = partial(endpoint.endpoint, sink)
        if probes:
            found["probe"] = partial(endpoint.probe, sink, pipeline.name)
    if isinstance(sink, KafkaSink):
        found["brokers"] = partial(brokers.brokers, sink)
    return found


def _loaded(file: Path, into: dict[str, Pipeline]) -> Iterator[Finding]:
    into[str(file)] = pipeline = load(file)
    yield ok("file", f"pipeline {pipeline.name}")


def _function(pipeline: Pipeline) -> Iterator[Finding]:
    try_out(pipeline)
    yield ok("function", f"{pipeline.transform.function} can be imported")


def _tried(pipelines: Mapping[str, Pipeline]) -> Iterator[Finding]:
    """Start Spark once for all of them."""
    from penstock.spark.trial import engine

    began = time.monotonic()
    with engine([*pipelines.values()]) as spark:
        yield ok("engine", f"Spark started, and a query went through, in {time.monotonic() - began:.0f} s")
        for about, pipeline in pipelines.items():
            yield from examined("transform", partial(_understood, spark, pipeline), about)


def _understood(spark: Any, pipeline: Pipeline) -> Iterator[Finding]:
    from penstock.spark.trial import understand

    understand(spark, pipeline.transform)
    yield ok("transform", "Spark understands it")
