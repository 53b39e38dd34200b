"""A bar before a change that an expression raises on: what came before is delivered, then the pipeline halts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.change import Change, from_batch
from penstock.errors import TransformInvalid
from penstock.source import Window


class Bar(NamedTuple):
    """Before which change a reader halts, and with which error."""

    culprit: Change
    error: TransformInvalid

    def cut(self, windows: Iterator[Window]) -> Iterator[Window]:
        """Changes up to the culprit; raises the error there."""
        for window in windows:
            found = [is_same(self.culprit, change) for change in from_batch(window.changes)]
            if True in found:
                yield Window(window.changes.slice(0, found.index(True)), None, idle=False)
                raise self.error
            yield window

    def cut_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of batches."""
        return (window.changes for window in self.cut(Window(changes, None, idle=False) for changes in batches))


def is_same(culprit: Change, change: Change) -> bool:
    """Whether this is the culprit met again; a row of a range is read anew each time, so it is known by its key alone."""
    if culprit.ordinal is None:
        return change.place == culprit.place
    return change.ordinal is not None and (change.table, change.key) == (culprit.table, culprit.key)
