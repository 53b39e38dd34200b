"""A pipeline: the unit of configuration, leadership and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from penstock.coordinator import State
from penstock.settings import absent, refuse, settings
from penstock.sink import Sink
from penstock.source import Source
from penstock.text.duration import Duration
from penstock.text.size import Heap

_LEAST_TIMEOUT = timedelta(milliseconds=100)


@settings
class Transform:
    """The steps between source and sink, in this order; `timeout` limits one call of the function."""

    where: str | None = absent("every change")
    select: Mapping[str, str] | None = None
    function: str | None = None
    timeout: Duration = timedelta(seconds=60)

    def __post_init__(self) -> None:
        refuse(
            self.timeout < _LEAST_TIMEOUT and "transform.timeout is too short: write 100ms or more",
            self.function is None
            and self.timeout != Transform.timeout
            and "transform.timeout limits calls of transform.function, which is missing: remove it, or name a function",
        )

    @property
    def has_sql(self) -> bool:
        """Whether there are expressions for Spark."""
        return self.where is not None or self.select is not None


@settings
class SparkSettings:
    """The master of Spark, and settings in addition to those of Penstock."""

    master: str | None = absent("local, with as many slots as needed")
    memory: Heap | None = absent("a quarter of memory, 1GiB to 4GiB")
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Frozen and picklable, so that workers receive it whole."""

    name: str
    source: Source
    sink: Sink
    state: State
    transform: Transform = field(default_factory=Transform)
    mode: Literal["live", "batch"] = "live"
    spark: SparkSettings = field(default_factory=SparkSettings)
    folder: str | None = None  # the first place to search for the module of the function
