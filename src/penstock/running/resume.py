"""Where a pipeline goes on: at its watermark, at the start its file names, or where a person says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from penstock.batch_target import prove
from penstock.change import Lane
from penstock.coordinator import Term
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourceRewound, SourceUnavailable, StateLost
from penstock.owner import Owner
from penstock.ownership import owner_of, require
from penstock.pipeline import Pipeline
from penstock.sink_watermark import is_same_life, kept, release
from penstock.watermark import at_watermark

UNKNOWN = {
    "state.lost",
    "source.rewound",
    "source.pruned",
    "source.row-too-large",
    "capture.broken",
    "capture.damaged",
    "transform.invalid",
}
"""Errors after which only a person knows where to go on."""


def decide(
    known: bool, registered: int | None, said: str | None, last_error: Mapping[str, str] | None, kept: bool = False
) -> str | None:
    """`watermark`, `sink`, `file` or `person`.

    None where nobody may decide: the source knows the pipeline and the store does not, nor does the sink keep a watermark itself.
    """
    asked = said is not None and (not known or (last_error or {}).get("code") in UNKNOWN)
    if asked:
        return "person"
    if known:
        return "watermark"
    if kept:
        return "sink"
    return "file" if registered is None else None


def place(pipeline: Pipeline, term: Term, said: str | None, last_error: Mapping[str, str] | None) -> int | None:
    """Make sure that every lane has a watermark to start from; the position of one that counts instead of what was said.

    Raises SourceOwned before anything is placed, whatever was said, if the registration belongs to another state.
    """
    source, state, owner = pipeline.source, pipeline.state, owner_of(pipeline)
    require(pipeline, owner)
    standing, unheeded = state.pipeline_state(pipeline.name), None
    lanes = source.lanes()
    is_begun = not standing.watermarks.keys().isdisjoint(lanes)
    for lane in lanes:
        known = state.watermark(pipeline.name, lane)
        registered = source.retention.registered(pipeline.name, lane) if source.retention else None
        copy = _copy(pipeline, lane) if known is None else None
        has_appeared = is_begun and known is None and registered is None
        by = decide(known is not None, registered, None if has_appeared else said, last_error, copy is not None)
        if by is None:
            raise StateLost(
                f"the source has delivered to pipeline {pipeline.name} before, last noted at position {registered}, "
                "but the state store has no watermark of it",
                "point `state` at the store it used; or say where to go on: "
                f"penstock run FILE --from {registered} | --from beginning | --from now | --from snapshot",
            )
        if by == "person" and (last_error or {}).get("code") == SourceRewound.code and source.seek:
            source.seek.renew()
        if by == "watermark" and known:
            # The pipeline lives, and the source must still continue at its watermark.
            with suppress(SourceUnavailable):  # one that can only be read is delivered from: `Settling` reports it
                if source.retention:
                    at_watermark(pipeline, lane, partial(source.retention.settle, pipeline.name, lane, owner=owner))
                else:
                    at_watermark(pipeline, lane, partial(prove, source, lane))
            unheeded = known.position if said else unheeded
        elif by == "sink" and copy:
            state.place(term, lane, copy)
            _register(pipeline, lane, copy.cursor, owner)
        else:
            release(pipeline, [lane])
            cursor = source.begin(lane, said if by == "person" and said else "beginning" if has_appeared else source.start)
            ranges = () if has_appeared else standing.watermarks.keys() - set(lanes)  # of a snapshot that was given up
            state.place(term, lane, Watermark(cursor, source.position(cursor), known.delivered if known else None), ranges)
            _register(pipeline, lane, cursor, owner)
    return unheeded


def appear(pipeline: Pipeline, term: Term) -> None:
    """Begin the lanes that have appeared since the pipeline was placed."""
    if not pipeline.state.pipeline_state(pipeline.name).watermarks.keys() >= set(pipeline.source.lanes()):
        place(pipeline, term, None, None)


def _register(pipeline: Pipeline, lane: Lane, cursor: Cursor, owner: Owner) -> None:
    if pipeline.source.retention:
        pipeline.source.retention.register(pipeline.name, lane, cursor, owner)


def _copy(pipeline: Pipeline, lane: Lane) -> Watermark | None:
    """What the sink has kept of this life of the source."""
    if not (copy := kept(pipeline, lane)):
        return None
    head = pipeline.source.head(lane)
    return copy if is_same_life(pipeline.source, Watermark(head, pipeline.source.position(head)), copy) else None
