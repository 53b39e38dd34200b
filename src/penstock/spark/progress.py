"""The watermark that may be recorded, given the changes and marks handed to a sink and its durable changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.change import Change, Place
from penstock.cursor import Cursor, Watermark


@dataclass(slots=True)
class Progress:
    """Follows one lane from a watermark on.

    - A mark counts once every change before it is durable.
    - The watermark never goes back and never passes a change that was handed over and is not durable.
    - A change with an ordinal does not move it, since others of its position may still come; the mark after them does.
    """

    watermark: Watermark
    handed: Place | None = None
    _marks: deque[tuple[Place | None, int, Cursor]] = field(default_factory=deque)

    def hand(self, place: Place) -> None:
        """Note the place of the last change handed to the sink."""
        self.handed = place

    def mark(self, position: int, cursor: Cursor) -> Watermark:
        """Note a mark after all changes handed so far; returns the watermark once they are durable."""
        if self._marks and self._marks[-1][0] == self.handed:
            self._marks.pop()
        self._marks.append((self.handed, position, cursor))
        return Watermark(cursor, position, self.handed[0] if self.handed else self.watermark.delivered)

    def durable(self, change: Change | None, cursor: Cursor | None) -> Watermark:
        """The watermark after the last durable change; `cursor` is the one immediately after it."""
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
