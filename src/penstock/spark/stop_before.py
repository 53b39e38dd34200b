"""A stop before a change on which an expression raises: the changes before it are delivered, then the pipeline halts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from typing import NamedTuple

from penstock.change import Change, Lane, from_batch
from penstock.errors import TransformInvalid
from penstock.source import Window


class StopBefore(NamedTuple):
    """The change before which the reader of a lane halts, and the error."""

    change: Change
    error: TransformInvalid
    lane: Lane = Lane("")

    def cut(self, windows: Iterator[Window]) -> Iterator[Window]:
        """The changes before the failing one, at which this raises the error."""
        with closing(windows) if isinstance(windows, Generator) else nullcontext():
            for window in windows:
                found = [is_same(self.change, change) for change in from_batch(window.changes)]
                if True in found:
                    yield Window(window.changes.slice(0, found.index(True)), None, idle=False)
                    raise self.error
                yield window


def is_same(failing: Change, change: Change) -> bool:
    """Whether a change is the failing one, read again; a row of a range has a new position in each read, and is found by key."""
    if failing.ordinal is None:
        return change.place == failing.place
    return change.ordinal is not None and (change.table, change.key) == (failing.table, failing.key)
