"""Rows that are there already go before the stream: which of their ranges are left, and how the stream goes on behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.cursor import Cursor, Watermark
from penstock.pipeline import Pipeline
from penstock.sink_watermark import release
from penstock.source import ranges_at


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ranges to deliver; an earlier query may have delivered some rows of those that were begun."""

    ranges: Mapping[Lane, Cursor]
    begun: frozenset[Lane]


def outstanding(pipeline: Pipeline, term: Term) -> Backfill | None:
    """The ranges that are still to be delivered, each with a watermark to begin at; None once every stream can go on."""
    marks = pipeline.state.pipeline_state(pipeline.name).watermarks
    left: dict[Lane, Cursor] = {}
    for lane in marks.keys() & set(pipeline.source.lanes()):
        left |= _outstanding(pipeline, term, lane, marks)
    return Backfill(left, frozenset(left.keys() & marks)) if left else None


def _outstanding(pipeline: Pipeline, term: Term, lane: Lane, marks: Mapping[Lane, Watermark]) -> Mapping[Lane, Cursor]:
    source, state, cursor = pipeline.source, pipeline.state, marks[lane].cursor
    ranges = ranges_at(source, cursor)
    new = {name: begin for name, begin in ranges.items() if name not in marks}
    release(pipeline, new)
    for name, begin in new.items():
        state.place(term, name, Watermark(begin, source.position(begin)))
    left = {name: begin for name, begin in ranges.items() if not _is_read(pipeline, begin, marks.get(name))}
    if source.snapshot and ranges and not left:
        joined = source.snapshot.joined(cursor, [marks[name].cursor for name in ranges])
        state.place(term, lane, Watermark(joined, source.position(joined)), instead_of=ranges)
    return left


def _is_read(pipeline: Pipeline, begin: Cursor, reached: Watermark | None) -> bool:
    return reached is not None and reached.position > pipeline.source.position(begin)
