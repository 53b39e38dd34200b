"""The checks of `doctor` for a captured database."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.capture import Survey
from penstock.files.room import unwritable
from penstock.finding import Check, Finding, failed, ok, warning
from penstock.sources.sqlite.database import enable_remedy, opened, repair_remedy
from penstock.sources.sqlite.survey import survey

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.sources.sqlite.source import SqliteSource

LONG_LOG = 1_000_000  # the number of changes in the log that causes a warning
SKEW = timedelta(seconds=5)

_LAST = "select (at - 2440587.5) * 86400.0 from _penstock_log order by seq desc limit 1"


def checks(pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
    """All checks by name."""
    source: SqliteSource = pipeline.source  # type: ignore[assignment]
    return {
        "database": partial(database, source),
        "capture": partial(capture, source),
        "log": partial(log, source),
        "clock": partial(clock, source),
    }


def database(source: SqliteSource) -> Iterator[Finding]:
    """Whether the file is writable, and readers and writers do not wait for each other."""
    path, mode = source.database, survey(source.database).journal_mode
    why = None if os.access(path, os.W_OK) else "this user may not write to it"
    if why := why or unwritable(Path(path).parent):
        yield failed(
            "database", f"{path} is not writable, and progress is recorded in it: {why}", "give this user the right to write"
        )
    elif mode != "wal":
        said = f"{path} does not use write-ahead logging ({mode}): readers and writers wait for each other"
        yield warning("database", said, f"penstock capture enable {path} --wal")
    else:
        yield ok("database", path)


def capture(source: SqliteSource) -> Iterator[Finding]:
    """Whether every change is logged."""
    found, path = survey(source.database, source.tables), source.database
    wanted = f"tables that match {source.tables}" if source.tables else "tables"
    named: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for table in found.tables:
        named[table.state][table.table] = table.why
    for name, why in named["broken"].items():
        yield failed("capture", f"{name} is broken: {why}", repair_remedy(path, name))
    for name, why in named["suspended"].items():
        yield warning("capture", f"{name} is suspended: {why}", f"penstock capture resume {path} {name}")
    if source.tables and named["not captured"]:
        yield warning("capture", f"not captured: {', '.join(named['not captured'])}", enable_remedy(path))
    if named["captured"]:
        yield ok("capture", f"captured: {', '.join(named['captured'])}")
    elif not (named["broken"] or named["suspended"]):
        yield failed("capture", f"{path} has no captured {wanted}", enable_remedy(path))


def log(source: SqliteSource) -> Iterator[Finding]:
    """The length of the log, and the pipelines that keep it."""
    yield from judged_log(source.database, survey(source.database))


def judged_log(path: str, found: Survey) -> Iterator[Finding]:
    """The findings for the length of the log and its readers."""
    length = 0 if found.first is None or found.head is None else found.head - found.first + 1
    gone = [one for one in found.readers if one.state == "gone" and one.kept]
    for one in gone:
        said = f"{one.kept} changes are kept for {one.pipeline} alone, which was last seen at {one.noted_at}"
        yield warning("log", said, f"run it, or: penstock forget --database {path} {one.pipeline}")
    if length > LONG_LOG and not gone:
        yield warning(
            "log", f"{length} changes wait for the slowest pipeline", "find the slowest pipeline with penstock capture status"
        )
    elif not gone:
        yield ok("log", f"{length} changes, {len(found.readers)} pipelines registered")


def clock(source: SqliteSource) -> Iterator[Finding]:
    """Whether the last change of the database is in the past."""
    with opened(source.database) as connection:
        found = connection.execute(_LAST).fetchone()
    now = datetime.now(UTC)
    last = datetime.fromtimestamp(found[0], UTC) if found else now
    if last > now + SKEW:
        said = f"the last change was made at {last:%Y-%m-%d %H:%M:%S} UTC, and the clock of this host shows {now:%H:%M:%S} UTC"
        yield warning("clock", said, "set the clock, or wait: lag and times of changes are wrong, order is not")
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, after the last change")
