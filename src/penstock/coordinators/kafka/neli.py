"""NELI, an election without a service of its own: the owner of partition zero of a topic leads. Pure.

An owner publishes heartbeats and must receive them. An owner that receives none before its deadline is fenced: it stands down
before the brokers give its partition to another. If it still owns the partition when it receives one again, it resumes. An owner
that loses its partition is revoked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Ownership:
    """The leadership of a member. `seen_at`: when it sent the newest heartbeat that it has received.

    `revocations`: how often the brokers took partition zero while it led.
    """

    owns: bool = False
    leads: bool = False
    seen_at: float = float("-inf")
    revocations: int = 0

    def assigned(self, partitions: Collection[int]) -> Ownership:
        """The brokers gave it these partitions; it leads once it has received a heartbeat of its own."""
        return replace(self, owns=True, leads=False) if 0 in partitions else self

    def revoked(self, partitions: Collection[int]) -> Ownership:
        """The brokers took these partitions."""
        if 0 not in partitions:
            return self
        return replace(self, owns=False, leads=False, revocations=self.revocations + self.leads)

    def received(self, sent_at: float, now: float, deadline: float) -> Ownership:
        """It received a heartbeat that it sent at this time; one older than the deadline proves nothing."""
        leads = self.leads or (self.owns and now - sent_at <= deadline)
        return replace(self, leads=leads, seen_at=max(self.seen_at, sent_at))

    def checked(self, now: float, deadline: float) -> Ownership:
        """The leadership at this time: a leader that has seen no heartbeat within the deadline is fenced."""
        return replace(self, leads=self.leads and now - self.seen_at <= deadline)
