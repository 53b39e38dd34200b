"""Acting on a source at the watermark of a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourcePruned
from penstock.pipeline import Pipeline

T = TypeVar("T")


def at_watermark(pipeline: Pipeline, lane: Lane, act: Callable[[Cursor], T]) -> tuple[Watermark, T] | None:
    """A lane's watermark and the result of an act at it; None without a watermark.

    The record of a predecessor may arrive after its term, and be settled: the act is repeated if the watermark has moved meanwhile.
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
