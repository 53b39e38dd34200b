"""The point at which a pipeline continues: its watermark, the start in its file, or the argument of --from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.cursor import Watermark
from penstock.errors import SourceRewound, SourceUnavailable, StateLost
from penstock.owner import Owner
from penstock.ownership import owner_of, require
from penstock.pipeline import Pipeline
from penstock.progress.batch_target import prove
from penstock.progress.watermark import at_watermark, is_same_life, kept, release
from penstock.source import Source

UNKNOWN = {
    "state.lost",
    "source.rewound",
    "source.pruned",
    "source.row-too-large",
    "capture.broken",
    "capture.damaged",
    "transform.invalid",
}
"""Errors after which only an operator can decide where to continue."""


def decide(
    known: bool, registered: int | None, said: str | None, last_error: Mapping[str, str] | None, kept: bool = False
) -> str | None:
    """`watermark`, `sink`, `file` or `person`.

    None if only an operator can decide: the source has registered the pipeline, but neither the store nor the sink has a watermark.
    """
    if said is not None and (not known or (last_error or {}).get("code") in UNKNOWN):
        return "person"
    if known:
        return "watermark"
    if kept:
        return "sink"
    return "file" if registered is None else None


class Resumption(NamedTuple):
    """The decision about one lane. `mark`: the watermark of the store or of the sink, if that decides."""

    by: str
    mark: Watermark | None
    delivered: int | None
    has_appeared: bool


def place(pipeline: Pipeline, term: Term, said: str | None, last_error: Mapping[str, str] | None) -> int | None:
    """Give every lane a watermark to start from; returns the position of a watermark that overrides `said`.

    All lanes are placed in one step, after all decisions: an interrupted start leaves no lane without a watermark.
    Raises SourceOwned before any lane is placed if the registration belongs to another state.
    """
    source, owner = pipeline.source, owner_of(pipeline)
    require(pipeline, owner)
    marks = pipeline.state.pipeline_state(pipeline.name).watermarks
    found = _decided(pipeline, marks, said, last_error)
    if (last_error or {}).get("code") == SourceRewound.code and source.seek and any(one.by == "person" for one in found.values()):
        source.seek.renew()
    kept = {lane: one.mark for lane, one in found.items() if one.by == "watermark" and one.mark}
    for lane in kept:
        _confirm(pipeline, lane, owner)
    begun = [lane for lane, one in found.items() if one.mark is None]
    release(pipeline, begun)
    placed = {lane: one.mark or _begun(source, lane, one, said) for lane, one in found.items() if lane not in kept}
    if placed:
        is_anew = any(not found[lane].has_appeared for lane in begun)
        pipeline.state.place(term, placed, marks.keys() - found.keys() if is_anew else ())  # of an abandoned snapshot
    for lane, mark in placed.items():
        if source.retention:
            source.retention.register(pipeline.name, lane, mark.cursor, owner)
    return max((mark.position for mark in kept.values()), default=None) if said else None


def _decided(
    pipeline: Pipeline, marks: Mapping[Lane, Watermark], said: str | None, last_error: Mapping[str, str] | None
) -> Mapping[Lane, Resumption]:
    """The decision about each lane. Raises StateLost."""
    lanes, retention = pipeline.source.lanes(), pipeline.source.retention
    is_begun, found = not marks.keys().isdisjoint(lanes), {}
    for lane in lanes:
        known, registered = marks.get(lane), retention.registered(pipeline.name, lane) if retention else None
        copy = None if known else _copy(pipeline, lane)
        has_appeared = is_begun and known is None and registered is None
        by = decide(known is not None, registered, None if has_appeared else said, last_error, copy is not None)
        if by is None:
            raise StateLost(
                f"the source has delivered to pipeline {pipeline.name} before, last noted at position {registered}, "
                "but the state store has no watermark of it",
                "set `state` to the previous store; or choose where to continue: "
                f"penstock run FILE --from {registered} | --from beginning | --from now | --from snapshot",
            )
        mark = {"watermark": known, "sink": copy}.get(by)
        found[lane] = Resumption(by, mark, known.delivered if known else None, has_appeared)
    return found


def _confirm(pipeline: Pipeline, lane: Lane, owner: Owner) -> None:
    """Check that the source can still continue at the watermark of a lane."""
    source = pipeline.source
    with suppress(SourceUnavailable):  # a source that is only readable can still be delivered: `Settling` reports it
        if source.retention:
            at_watermark(pipeline, lane, partial(source.retention.settle, pipeline.name, lane, owner=owner))
        else:
            at_watermark(pipeline, lane, partial(prove, source, lane))


def _begun(source: Source, lane: Lane, found: Resumption, said: str | None) -> Watermark:
    """The first watermark of a lane; a lane that has appeared begins at its beginning."""
    start = said if found.by == "person" and said else "beginning" if found.has_appeared else source.start
    cursor = source.begin(lane, start)
    return Watermark(cursor, source.position(cursor), found.delivered)


def appear(pipeline: Pipeline, term: Term) -> None:
    """Begin the lanes that have appeared since the pipeline was placed."""
    if not pipeline.state.pipeline_state(pipeline.name).watermarks.keys() >= set(pipeline.source.lanes()):
        place(pipeline, term, None, None)


def _copy(pipeline: Pipeline, lane: Lane) -> Watermark | None:
    """The watermark in the sink, if it belongs to the present incarnation of the source."""
    copy = kept(pipeline, lane)
    return copy if copy and is_same_life(pipeline.source, pipeline.source.head(lane), copy.cursor) else None
