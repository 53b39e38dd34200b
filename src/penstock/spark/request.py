"""The options of `format("penstock")` in a session of a PySpark user, parsed strictly."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.change import Lane
from penstock.config.document import resolved
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid, SourceUnavailable
from penstock.message import documents
from penstock.progress.batch_target import Target, heads
from penstock.source import ANONYMOUS, Source, Span, count
from penstock.spark.outsize import Outsize, cut, refused
from penstock.spark.rows import shown

OPTIONS = ("pipeline", "from", "to", "maxChangesPerTrigger", "partitions", "reader")
_SPARKS_OWN = ("path", "checkpointlocation")
LEAST = 10_000
"""The least number of changes for a task."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The settings of a source for another process, which resolves the `references` that the pipeline file has for secrets."""

    kind: type[Any]
    values: Mapping[str, Any]
    references: Mapping[str, str]
    file: str

    def source(self) -> Source:
        """The source with its references resolved in this process. Raises ConfigInvalid if one cannot be resolved."""
        found = {name: resolved(text, ("source", name), Path(self.file)) for name, text in self.references.items()}
        made: Source = self.kind(**{**self.values, **found})
        return made


def borrowed(source: Source, written: Mapping[str, str], file: str) -> Borrowed | Source:
    """The source for other processes; unchanged if the file has no reference for a secret of it."""
    kind: Any = type(source)
    secret = {one.name for one in fields(kind) if not one.repr}
    references = {name: text for name, text in written.items() if name in secret}
    values = {one.name: getattr(source, one.name) for one in fields(kind) if one.name not in references}
    return Borrowed(kind, values, references, file) if references else source


@dataclass(frozen=True, slots=True)
class Request:
    """A source and the requested part of it; frozen and picklable, since Spark passes it between processes.

    `head` is the head of the source at the creation of the DataFrame, so that every computation of a batch is the same.
    """

    source: Source
    head: Target
    start: str | None = None
    upto: str | None = None
    most: int | None = None
    partitions: int = 1
    reader: str | None = None
    file: str = ""
    written: Mapping[str, str] = field(default_factory=dict)  # the source in the pipeline file, with references

    def __getstate__(self) -> dict[str, Any]:
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return state | {"source": borrowed(self.source, self.written, self.file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        source = state["source"]
        for name, value in {**state, "source": source.source() if isinstance(source, Borrowed) else source}.items():
            object.__setattr__(self, name, value)

    def begin(self, lane: Lane, default: str) -> Cursor:
        """The cursor at which a lane begins."""
        if self.start is None and default == "snapshot":
            raise ConfigInvalid(
                "`start: snapshot` is supported by `penstock run` only", 'set .option("from", "beginning") or "now"'
            )
        return self.source.begin(lane, self.start or default)

    def spans(self) -> list[Span]:
        """The spans that a batch reads, of all lanes."""
        whole = [Span(lane, self.begin(lane, "beginning"), self._end(lane)) for lane in self.head]
        for span in whole:
            if self.source.position(span.after) > self.source.position(span.upto):
                raise ConfigInvalid("option to lies before option from", "set a later end, or remove the option")
        return [piece for span in whole for piece in self.pieces(span)]

    def pieces(self, span: Span) -> list[Span]:
        """A span, cut for parallel tasks."""
        return list(self.source.split(span, self._parts(span)))

    def _parts(self, span: Span) -> int:
        """The number of parts of a span; the maximum if it cannot be counted, since Spark retries tasks but not plans."""
        changes = None
        with suppress(SourceUnavailable):
            changes = count(self.source, span, self.partitions * LEAST) if self.partitions > 1 else 0
        return self.partitions if changes is None else max(1, min(self.partitions, changes // LEAST))

    def batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The changes of a span, in batches that Spark can carry. Raises RowTooLarge for a change above `source.max_row`."""
        limit = self.source.max_row
        for piece in chain.from_iterable(cut(documents(changes), limit) for changes in self.source.read(span, ANONYMOUS)):
            if isinstance(piece, Outsize):
                raise refused(piece.change, limit)
            yield shown(piece)

    def _end(self, lane: Lane) -> Cursor:
        return self.head[lane] if self.upto is None else self.source.begin(lane, self.upto)


def parse(options: Mapping[str, str]) -> Request:
    """The request of these options. Raises ConfigInvalid, and the errors of the pipeline file and the source."""
    from penstock.config import load, written  # here, since workers, which unpickle requests, do not need it

    known = {name.lower(): name for name in OPTIONS}
    given = {known.get(name.lower(), name): value for name, value in options.items() if name.lower() not in _SPARKS_OWN}
    if strange := sorted(given.keys() - set(OPTIONS)):
        raise ConfigInvalid(f"unknown option {', '.join(strange)}", f"the options are {', '.join(OPTIONS)}")
    file = given.get("pipeline") or options.get("path")
    if not file:
        raise ConfigInvalid("the option pipeline is missing", 'name a pipeline file: .option("pipeline", "orders.yaml")')
    pipeline = load(file, delivers=False)
    return Request(
        source=pipeline.source,
        head=heads(pipeline.source),
        start=given.get("from"),
        upto=given.get("to"),
        most=_number(given, "maxChangesPerTrigger"),
        partitions=_number(given, "partitions") or os.cpu_count() or 1,
        reader=_reader(given, pipeline.name),
        file=str(Path(file).resolve()),
        written=written(file, "source"),
    )


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigInvalid(f"option {name} is {text!r}", "set a whole number from 1 on")
    return int(text)


def _reader(given: Mapping[str, str], pipeline: str) -> str | None:
    name = given.get("reader")
    if name is not None and (not name.strip() or name == pipeline):
        raise ConfigInvalid(
            f"option reader is {name!r}", "set a name that no pipeline has: the source records the progress under it"
        )
    return name
