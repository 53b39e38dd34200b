"""A pipeline: name, source, transform, sink, state. The unit of configuration, leadership, watermark and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.coordinator import Coordinator
from penstock.settings import settings
from penstock.sink import Sink
from penstock.source import Source


@settings
class Transform:
    """What happens to changes between source and sink, in this order."""

    where: str | None = None
    select: Mapping[str, str] | None = None
    function: str | None = None

    @property
    def has_sql(self) -> bool:
        """Whether Spark has expressions to evaluate."""
        return self.where is not None or self.select is not None


@settings
class SparkSettings:
    """Where Spark runs, and with which settings beyond ours."""

    master: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Frozen and picklable, so that it can travel to workers whole."""

    name: str
    source: Source
    sink: Sink
    state: Coordinator
    transform: Transform = field(default_factory=Transform)
    mode: Literal["live", "batch"] = "live"
    spark: SparkSettings = field(default_factory=SparkSettings)
    folder: str | None = None  # where the module of the function is looked for first
