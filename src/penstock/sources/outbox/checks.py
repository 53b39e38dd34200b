"""The checks of `doctor` for an outbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import SourcePruned
from penstock.finding import Check, Finding, ok, warning
from penstock.source import Reader
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.outbox.mark.stamp import EVERY
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.source import LANE, OutboxSource
from penstock.sources.outbox.survey import Holder, survey
from penstock.text.duration import roughly

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

LONG_OUTBOX = 1_000_000  # the number of messages that causes a warning


def checks(pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
    """All checks by name; a table of reader mark has no space to check."""
    if isinstance(source := pipeline.source, MarkSource):
        return {"outbox": partial(marked, source)}
    assert isinstance(source, OutboxSource), source
    return {"outbox": partial(outbox, source), "space": partial(space, source)}


def outbox(source: OutboxSource) -> Iterator[Finding]:
    """Whether the outbox exists, in the cluster that created it, with ids that define the order."""
    found, messages = survey(source.database, Names(source.table)), _messages(source)
    if source.notify and not found.has_trigger:
        said = f"source.notify is on, but inserts into {source.table} send no notification"
        yield warning("outbox", said, f"{Names(source.table).init()} --notify")
    if messages > LONG_OUTBOX:
        yield warning("outbox", f"{messages} messages are in {source.table}", "find the slowest pipeline with penstock status")
    else:
        yield ok("outbox", f"{source.table}: {messages} messages, {found.bytes // 1024} kB, {found.dead} dead rows")


def _messages(source: OutboxSource) -> int:
    """The number of messages in the outbox; counted again if its beginning is purged before the count."""
    while True:
        with suppress(SourcePruned):
            return source.backlog(LANE, source.begin(LANE, "beginning")).changes or 0


def marked(source: MarkSource) -> Iterator[Finding]:
    """Whether the table exists with the columns that reader mark needs; the number of its rows."""
    with databases.opened(source.database, source.table)() as table:
        table.read(EVERY, 1)  # names every column
    found = source.backlog(LANE, source.begin(LANE, "beginning"))
    if (found.changes or 0) > LONG_OUTBOX:
        yield warning(
            "outbox", f"{found.changes} messages are in {source.table}", "check with penstock status that the pipeline runs"
        )
    else:
        yield ok("outbox", f"{source.table}: {found.changes} messages, read by marks")


def space(source: OutboxSource) -> Iterator[Finding]:
    """The pipelines for which settled messages are kept, and the sessions that keep vacuum from reusing their space."""
    yield from judged_space(survey(source.database, Names(source.table)).holders, source.retention.readers())


def judged_space(holders: Sequence[Holder], readers: Sequence[Reader]) -> Iterator[Finding]:
    """The findings for these sessions and pipelines."""
    for one in holders:
        since = "" if one.seconds is None else f", open for {roughly(one.seconds)}"
        yield warning("space", f"{one.who}{since}, keeps vacuum from reusing the space of settled messages", one.remedy)
    gone = [reader for reader in readers if reader.is_gone and reader.kept]
    for reader in gone:
        said = f"{reader.kept} messages are kept for {reader.pipeline} alone, which was last noted {roughly(reader.silent)} ago"
        yield warning("space", said, f"run it, or: penstock forget --database DSN {reader.pipeline}")
    if not holders and not gone:
        yield ok("space", f"vacuum can reuse all space; {len(readers)} pipelines registered")
