"""All checks in order: of the machine, and of each pipeline file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock import registry
from penstock.checkup import machine, standing
from penstock.checkup.secrecy import secrets
from penstock.config import load
from penstock.files.room import disk
from penstock.finding import Check, Finding, examined, ok
from penstock.pipeline import Pipeline
from penstock.transform.user_function import try_out


def examine_machine() -> Iterator[Finding]:
    """The findings on the machine."""
    for name, check in machine.checks().items():
        yield from examined(name, check)


def examine(files: Sequence[Path], *, probes: bool = False, deep: bool = False) -> Iterator[Finding]:
    """The findings on these pipelines."""
    pipelines: dict[str, Pipeline] = {}
    for file in files:
        yield from examined("file", partial(_loaded, file, pipelines), str(file))
        if pipeline := pipelines.get(str(file)):
            for name, check in checks(file, pipeline, probes=probes).items():
                yield from examined(name, check, str(file))
    if deep:
        yield from examined("engine", partial(_tried, pipelines))


def checks(file: Path, pipeline: Pipeline, *, probes: bool = False) -> Mapping[str, Check]:
    """The checks of the parts of a pipeline, by name; those of one kind come from its descriptor."""
    parts = [*registry.parts(pipeline)]
    keys = [path for part, kind in parts for path in registry.files_of(part, kind, secret=True)]
    of_source, of_state, of_sink = (kind.checks_of(pipeline, probes=probes) if kind else {} for _, kind in parts)
    found: dict[str, Check] = {"secrets": partial(secrets, file, keys)}
    if written := [Path(path) for part, kind in parts[:2] for path in registry.files_of(part, kind)]:
        found["disk"] = partial(disk, written)
    if pipeline.transform.function:
        found["function"] = partial(_function, pipeline)
    own = {"state": partial(standing.state, pipeline), "leader": partial(standing.leader, pipeline)}
    return {**found, **of_source, **of_state, **own, **of_sink}


def _loaded(file: Path, into: dict[str, Pipeline]) -> Iterator[Finding]:
    into[str(file)] = pipeline = load(file)
    yield ok("file", f"pipeline {pipeline.name}")


def _function(pipeline: Pipeline) -> Iterator[Finding]:
    try_out(pipeline)
    yield ok("function", f"{pipeline.transform.function} can be imported")


def _tried(pipelines: Mapping[str, Pipeline]) -> Iterator[Finding]:
    """Start Spark once for all pipelines."""
    from penstock.spark.trial import engine

    began = time.monotonic()
    with engine([*pipelines.values()]) as spark:
        yield ok("engine", f"Spark started and ran a query in {time.monotonic() - began:.0f} s")
        for about, pipeline in pipelines.items():
            yield from examined("transform", partial(_understood, spark, pipeline), about)


def _understood(spark: Any, pipeline: Pipeline) -> Iterator[Finding]:
    from penstock.spark.trial import understand

    understand(spark, pipeline.transform)
    yield ok("transform", "Spark accepts it")
