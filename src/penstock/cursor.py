"""How far a stream has been read, and how far it has been delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Cursor = NewType("Cursor", str)
"""Everything up to here has been read. JSON text minted by a source; only that source may look inside."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything up to here has been delivered, on one lane.

    `position` is the cursor's position, `delivered` the last position that was really sent: filtered changes lie between.
    """

    cursor: Cursor
    position: int
    delivered: int | None = None
