"""What a harvest tells its handler: the kinds that goharvest has."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.harvest.meter import MeterStats


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """This harvest leads from now on; the id is never used again."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """It still leads, and marks rows anew after a failure."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """Leadership went to another in an orderly way."""


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """It stood down by itself: it did not see its own heartbeats."""


@dataclass(frozen=True, slots=True)
class MeterRead:
    """How much was delivered."""

    stats: MeterStats


HarvestEvent = LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead
