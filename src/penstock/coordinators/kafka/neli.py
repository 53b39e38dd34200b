"""NELI, an election without a service of its own: who owns partition zero of a topic leads. Pure.

An owner publishes heartbeats and must see its own come back. One that sees none for as long as its deadline stands down by itself,
before the brokers give its partition to another: it is fenced. If it still owns the partition when it sees one again, it resumes.
One that the brokers took the partition from was revoked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum


class Turn(Enum):
    """What has become of a leadership."""

    ACQUIRED = "acquired"
    REVOKED = "revoked"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a member knows of its part. `seen_at`: when the newest heartbeat was sent that it has seen come back."""

    owns: bool = False
    leads: bool = False
    seen_at: float = float("-inf")

    def assigned(self, partitions: Collection[int]) -> Ownership:
        """The brokers gave it these partitions; it leads once it has seen a heartbeat of its own."""
        return replace(self, owns=True, leads=False) if 0 in partitions else self

    def revoked(self, partitions: Collection[int]) -> tuple[Ownership, Turn | None]:
        """The brokers took these partitions."""
        if 0 not in partitions:
            return self, None
        return replace(self, owns=False, leads=False), Turn.REVOKED if self.leads else None

    def received(self, sent_at: float, now: float, deadline: float) -> tuple[Ownership, Turn | None]:
        """It saw a heartbeat of its own that was sent at this time; one that took too long proves nothing."""
        newer = replace(self, seen_at=max(self.seen_at, sent_at))
        if self.leads or not self.owns or now - sent_at > deadline:
            return newer, None
        return replace(newer, leads=True), Turn.ACQUIRED

    def checked(self, now: float, deadline: float) -> tuple[Ownership, Turn | None]:
        """Time has passed."""
        if self.leads and now - self.seen_at > deadline:
            return replace(self, leads=False), Turn.FENCED
        return self, None
