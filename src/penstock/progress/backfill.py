"""The snapshot before the stream: the remaining ranges of existing rows, and the start of the stream after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.cursor import Cursor, Watermark
from penstock.pipeline import Pipeline
from penstock.progress.watermark import release
from penstock.source import ranges_at, undelivered


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ranges to deliver; an earlier query may have delivered rows of those in `begun`."""

    ranges: Mapping[Lane, Cursor]
    begun: frozenset[Lane]


def outstanding(pipeline: Pipeline, term: Term) -> Backfill | None:
    """The undelivered ranges, each with a watermark placed at its beginning; None once every stream can continue."""
    source, marks = pipeline.source, pipeline.state.pipeline_state(pipeline.name).watermarks
    ranges = {lane: ranges_at(source, marks[lane].cursor) for lane in marks.keys() & set(source.lanes())}
    _place(pipeline, term, {name: begin for some in ranges.values() for name, begin in some.items() if name not in marks})
    left: dict[Lane, Cursor] = {}
    for lane, some in ranges.items():
        remaining = undelivered(source, some, marks)
        if source.snapshot and some and not remaining:
            joined = source.snapshot.joined(marks[lane].cursor, [marks[name].cursor for name in some])
            pipeline.state.place(term, {lane: Watermark(joined, source.position(joined))}, instead_of=some)
        left |= remaining
    return Backfill(left, frozenset(left.keys() & marks)) if left else None


def _place(pipeline: Pipeline, term: Term, new: Mapping[Lane, Cursor]) -> None:
    if new:
        release(pipeline, new)
        pipeline.state.place(term, {name: Watermark(begin, pipeline.source.position(begin)) for name, begin in new.items()})
