"""The watermark of a lane: calls of a source at it, and the copy of a sink that stores it together with the changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, cast

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import CursorInvalid, SourcePruned
from penstock.pipeline import Pipeline
from penstock.sink import TransactionalSink
from penstock.source import Source

T = TypeVar("T")


def at_watermark(pipeline: Pipeline, lane: Lane, act: Callable[[Cursor], T]) -> tuple[Watermark, T] | None:
    """The watermark of a lane and the result of `act` at its cursor; None without a watermark.

    A predecessor may record and settle progress after its term: the call is repeated if the watermark has moved since.
    """
    watermark = pipeline.state.watermark(pipeline.name, lane)
    while watermark:
        try:
            return watermark, act(watermark.cursor)
        except SourcePruned:
            before, watermark = watermark, pipeline.state.watermark(pipeline.name, lane)
            if watermark == before:
                raise
    return None


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
    if kept is None or not is_same_life(source, recorded.cursor, kept.cursor):
        return recorded
    return kept if kept.position > recorded.position else recorded


def is_same_life(source: Source, one: Cursor, other: Cursor) -> bool:
    """Whether two cursors have the same incarnation, and can be compared."""
    try:
        return source.incarnation(one) == source.incarnation(other)
    except CursorInvalid:
        return False
