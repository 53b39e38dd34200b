"""Where a sink keeps the watermark itself, together with what it has delivered, that copy counts wherever it is ahead."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.errors import CursorInvalid
from penstock.pipeline import Pipeline
from penstock.sink import TransactionalSink
from penstock.source import Source


def kept(pipeline: Pipeline, lane: Lane) -> Watermark | None:
    """What the sink itself says; None for most."""
    return cast(TransactionalSink, pipeline.sink).watermark(pipeline.name, lane) if pipeline.sink.keeps_watermark else None


def release(pipeline: Pipeline, lanes: Collection[Lane]) -> None:
    """Let the sink keep nothing for these lanes any more: they are about to be placed elsewhere."""
    if lanes:
        pipeline.sink.release(pipeline.name, lanes)


def later(source: Source, recorded: Watermark, kept: Watermark | None) -> Watermark:
    """Where to go on. What the store recorded behind the sink's copy were marks, with nothing delivered between.

    A copy of another life of the source, or of another source, says nothing about this one.
    """
    if kept is None or not is_same_life(source, recorded, kept):
        return recorded
    return kept if kept.position > recorded.position else recorded


def is_same_life(source: Source, one: Watermark, other: Watermark) -> bool:
    """Whether these two can be compared."""
    try:
        return source.incarnation(one.cursor) == source.incarnation(other.cursor)
    except CursorInvalid:
        return False
