"""The events of a harvest: those of goharvest."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.harvest.meter import MeterStats


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """The harvest became the leader; the id is unique."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """The leader marks rows again after a failure."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """Another harvest became the leader in an orderly way."""


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """The leader resigned because its heartbeats did not return."""


@dataclass(frozen=True, slots=True)
class MeterRead:
    """The delivered records."""

    stats: MeterStats


HarvestEvent = LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead
