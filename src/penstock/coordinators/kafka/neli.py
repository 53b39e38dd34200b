"""NELI, an election without a service of its own: the owner of partition zero of a topic leads. Pure.

An owner publishes heartbeats and must receive them. An owner that receives none before its deadline is fenced: it stands down
before the brokers give its partition to another. If it still owns the partition when it receives one again, it resumes. An owner
that loses its partition is revoked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum


class Turn(Enum):
    """A change of leadership."""

    ACQUIRED = "acquired"
    REVOKED = "revoked"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The leadership of a member. `seen_at`: when it sent the newest heartbeat that it has received."""

    owns: bool = False
    leads: bool = False
    seen_at: float = float("-inf")

    def assigned(self, partitions: Collection[int]) -> Ownership:
        """The brokers gave it these partitions; it leads once it has received a heartbeat of its own."""
        return replace(self, owns=True, leads=False) if 0 in partitions else self

    def revoked(self, partitions: Collection[int]) -> tuple[Ownership, Turn | None]:
        """The brokers took these partitions."""
        if 0 not in partitions:
            return self, None
        return replace(self, owns=False, leads=False), Turn.REVOKED if self.leads else None

    def received(self, sent_at: float, now: float, deadline: float) -> tuple[Ownership, Turn | None]:
        """It received a heartbeat that it sent at this time; one older than the deadline proves nothing."""
        newer = replace(self, seen_at=max(self.seen_at, sent_at))
        if self.leads or not self.owns or now - sent_at > deadline:
            return newer, None
        return replace(newer, leads=True), Turn.ACQUIRED

    def checked(self, now: float, deadline: float) -> tuple[Ownership, Turn | None]:
        """The leadership at this time."""
        if self.leads and now - self.seen_at > deadline:
            return replace(self, leads=False), Turn.FENCED
        return self, None
