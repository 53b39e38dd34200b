"""The point up to which a lane has been read, and the point up to which it has been delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Cursor = NewType("Cursor", str)
"""The point up to which a lane has been read: JSON text that only the source that created it interprets."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The point up to which a lane has been delivered; `delivered` is the position of the last change that was sent."""

    cursor: Cursor
    position: int
    delivered: int | None = None
