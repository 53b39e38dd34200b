"""The watermarks that sinks store together with the changes; a copy that is ahead of the state store counts."""

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
    """The watermark that the sink stores; None for most sinks."""
    return cast(TransactionalSink, pipeline.sink).watermark(pipeline.name, lane) if pipeline.sink.keeps_watermark else None


def release(pipeline: Pipeline, lanes: Collection[Lane]) -> None:
    """Remove the data of lanes at the destination, before they are placed elsewhere."""
    if lanes:
        pipeline.sink.release(pipeline.name, lanes)


def later(source: Source, recorded: Watermark, kept: Watermark | None) -> Watermark:
    """The later of the recorded watermark and the copy of the sink, which is ignored if it has another incarnation.

    A recorded watermark after that copy comes from marks, with no delivered change between.
    """
    if kept is None or not is_same_life(source, recorded, kept):
        return recorded
    return kept if kept.position > recorded.position else recorded


def is_same_life(source: Source, one: Watermark, other: Watermark) -> bool:
    """Whether two watermarks have the same incarnation, and can be compared."""
    try:
        return source.incarnation(one.cursor) == source.incarnation(other.cursor)
    except CursorInvalid:
        return False
