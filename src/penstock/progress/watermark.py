"""Calls of a source at the watermark of a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourcePruned
from penstock.pipeline import Pipeline

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
