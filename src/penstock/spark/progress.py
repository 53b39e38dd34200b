"""Which watermark may be recorded: pure bookkeeping between a stream of changes and marks, and what a sink says is durable."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.change import Change
from penstock.cursor import Cursor, Watermark

Place = tuple[int, int]
"""Position and ordinal."""


@dataclass(slots=True)
class Progress:
    """Follows one lane from a watermark on.

    - A mark counts once every change that came before it is durable.
    - The watermark never goes back and never passes a change that was handed over and is not durable yet.
    - A change with an ordinal does not move it: others of its position may still come. A mark behind them does.
    """

    watermark: Watermark
    handed: Place | None = None
    _marks: deque[tuple[Place | None, int, Cursor]] = field(default_factory=deque)

    def hand(self, place: Place) -> None:
        """A change, or a run up to this one, was handed to the sink."""
        self.handed = place

    def mark(self, position: int, cursor: Cursor) -> Watermark:
        """A resolved mark came, behind everything handed so far: the watermark once all of that is durable."""
        if self._marks and self._marks[-1][0] == self.handed:
            self._marks.pop()
        self._marks.append((self.handed, position, cursor))
        return Watermark(cursor, position, self.handed[0] if self.handed else self.watermark.delivered)

    def durable(self, change: Change | None, cursor: Cursor | None) -> Watermark:
        """The watermark now that this change, with the cursor behind it, is the last durable one."""
        if change and cursor and change.ordinal is None and change.position > self.watermark.position:
            self.watermark = Watermark(cursor, change.position, change.position)
        reached = change.place if change else None
        while self._marks and _covers(reached, self._marks[0][0]):
            handed, position, cursor = self._marks.popleft()
            if position > self.watermark.position:
                self.watermark = Watermark(cursor, position, handed[0] if handed else self.watermark.delivered)
        return self.watermark


def _covers(reached: Place | None, needed: Place | None) -> bool:
    return needed is None or (reached is not None and reached >= needed)
