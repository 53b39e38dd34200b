"""The interface of goharvest as a library: its configuration, events and calls. `penstock reap` is its program."""

from penstock.harvest.config import HarvestConfig, Limits, ReaperConfig
from penstock.harvest.event import HarvestEvent, LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, MeterRead, MeterStats
from penstock.harvest.harvest import Harvest, State

__all__ = [
    "Harvest",
    "HarvestConfig",
    "HarvestEvent",
    "LeaderAcquired",
    "LeaderFenced",
    "LeaderRefreshed",
    "LeaderRevoked",
    "Limits",
    "MeterRead",
    "MeterStats",
    "ReaperConfig",
    "State",
]
