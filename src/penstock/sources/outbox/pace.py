"""How often readers look at an outbox. Pure."""

from __future__ import annotations

GATHER = 0.003  # seconds from one look to the next when much happens
LEAST = 0.0003  # seconds that are left to others between them, however long all that follows from a look has taken


def rest(looked: float, now: float) -> float:
    """How long to wait until the next look, behind one that found something."""
    return max(LEAST, looked + GATHER - now)
