"""A stop before a change that an expression raises on: what came before is delivered, then the pipeline halts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from typing import NamedTuple

import pyarrow as pa

from penstock.change import Change, from_batch
from penstock.errors import TransformInvalid
from penstock.source import Window


class StopBefore(NamedTuple):
    """Before which change a reader halts, and with which error."""

    change: Change
    error: TransformInvalid

    def cut(self, windows: Iterator[Window]) -> Iterator[Window]:
        """Changes up to the failing row; raises the error there."""
        with closing(windows) if isinstance(windows, Generator) else nullcontext():
            for window in windows:
                found = [is_same(self.change, change) for change in from_batch(window.changes)]
                if True in found:
                    yield Window(window.changes.slice(0, found.index(True)), None, idle=False)
                    raise self.error
                yield window

    def cut_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of batches."""
        return (window.changes for window in self.cut(Window(changes, None, idle=False) for changes in batches))


def is_same(failing: Change, change: Change) -> bool:
    """Whether this is the failing row read again; a row of a range is read anew each time, so it is known by its key alone."""
    if failing.ordinal is None:
        return change.place == failing.place
    return change.ordinal is not None and (change.table, change.key) == (failing.table, failing.key)
