"""The configuration of goharvest: its keys, defaults, rules and error messages. Pure."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from penstock.config import document
from penstock.config.errors import unknown
from penstock.errors import ConfigInvalid
from penstock.harvest.spelling import nanoseconds

MS = 10**6
S = 10**9
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
LEVELS = ("trace", "debug", "info", "warn", "error")


def _limit(key: str, go: str, default: int | None, least: int, *, is_span: bool = True) -> Any:
    return field(default=default, metadata={"key": key, "go": go, "least": least, "is_span": is_span})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The section `limits`; durations are nanoseconds. `complete` adds the defaults that depend on other limits."""

    io_error_backoff: int = _limit("ioErrorBackoff", "IOErrorBackoff", 500 * MS, 0)
    poll_duration: int = _limit("pollDuration", "PollDuration", MS, MS)
    min_poll_interval: int = _limit("minPollInterval", "MinPollInterval", 100 * MS, MS)
    max_poll_interval: int | None = _limit("maxPollInterval", "MaxPollInterval", None, MS)
    heartbeat_timeout: int = _limit("heartbeatTimeout", "HeartbeatTimeout", 5 * S, MS)
    queue_timeout: int = _limit("queueTimeout", "QueueTimeout", 30 * S, MS)
    drain_interval: int | None = _limit("drainInterval", "DrainInterval", None, MS)
    mark_backoff: int = _limit("markBackoff", "MarkBackoff", 10 * MS, 0)
    max_in_flight_records: int = _limit("maxInFlightRecords", "MaxInFlightRecords", 1000, 1, is_span=False)
    send_concurrency: int = _limit("sendConcurrency", "SendConcurrency", 8, 1, is_span=False)
    send_buffer: int = _limit("sendBuffer", "SendBuffer", 10, 0, is_span=False)
    mark_query_records: int = _limit("markQueryRecords", "MarkQueryRecords", 100, 1, is_span=False)
    min_metrics_interval: int = _limit("minMetricsInterval", "MinMetricsInterval", 5 * S, 0)

    def complaints(self, given: frozenset[str]) -> Iterator[str]:
        """The defects, in the words of goharvest; `minPollInterval` bounds `maxPollInterval` if it is one of the given limits."""
        for one in fields(self):
            value, least = getattr(self, one.name), one.metadata["least"]
            if one.name == "max_poll_interval" and "min_poll_interval" in given:
                least = max(least, self.min_poll_interval)
            if value is None or value >= least:
                continue
            if value == 0:
                yield f"{one.metadata['go']}: cannot be blank."
            else:
                shown = f"{least // MS}ms" if one.metadata["is_span"] and least else str(least)
                yield f"{one.metadata['go']}: must be no less than {shown}."

    def complete(self) -> Limits:
        """These limits with the defaults that depend on others."""
        longest = self.max_poll_interval if self.max_poll_interval is not None else self.heartbeat_timeout // 2
        drain = self.drain_interval if self.drain_interval is not None else min(longest, self.queue_timeout)
        return replace(self, max_poll_interval=longest, drain_interval=drain)


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """The section `harvest`, complete. Competitors for a table share `leader_topic` and `leader_group_id`."""

    base_kafka_config: Mapping[str, Any] = field(default_factory=lambda: {"bootstrap.servers": "localhost:9092"}, repr=False)
    producer_kafka_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    leader_topic: str = ""
    leader_group_id: str = "reaper"
    data_source: str = field(default="host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable", repr=False)
    outbox_table: str = "outbox"
    name: str = field(default_factory=lambda: f"{socket.gethostname()}_{os.getpid()}_{int(time.time())}")
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.leader_topic:
            object.__setattr__(self, "leader_topic", f"{self.leader_group_id}.neli")
        object.__setattr__(self, "limits", self.limits.complete())
        if wrong := [*self._complaints(), *self.limits.complaints(frozenset())]:
            raise ConfigInvalid(" ".join(wrong), "correct the configuration of the harvest")

    def _complaints(self) -> Iterator[str]:
        for go, value in (("DataSource", self.data_source), ("OutboxTable", self.outbox_table), ("Name", self.name)):
            if not value.strip():
                yield f"{go}: cannot be blank."
        for go, value in (("LeaderTopic", self.leader_topic), ("LeaderGroupID", self.leader_group_id)):
            if not _NAME.fullmatch(value):
                yield f"{go}: must be in a valid format."
        if "enable.idempotence" in {**self.base_kafka_config, **self.producer_kafka_config}:
            yield "ProducerKafkaConfig: cannot override configuration 'enable.idempotence'."


@dataclass(frozen=True, kw_only=True)
class ReaperConfig:
    """The configuration file: the harvest, and the level of the process log."""

    harvest: HarvestConfig = field(default_factory=HarvestConfig)
    level: str = "debug"


_STRINGS = {
    "leaderTopic": "leader_topic",
    "leaderGroupID": "leader_group_id",
    "dataSource": "data_source",
    "outboxTable": "outbox_table",
    "name": "name",
}
_MAPPINGS = {"baseKafkaConfig": "base_kafka_config", "producerKafkaConfig": "producer_kafka_config"}
_LIMITS = {one.metadata["key"]: one for one in fields(Limits)}


def load(path: str | Path) -> ReaperConfig:
    """The configuration in this file. Raises ConfigInvalid; `${VAR}` is substituted as in a pipeline file."""
    with suppress(OSError, ValueError):  # `document.read` reports these
        if not Path(path).read_text(encoding="utf-8").strip():
            return ReaperConfig()  # an empty file means all defaults
    given = document.read(Path(path))
    try:
        return parse(given.values, str(path))
    except ConfigInvalid:
        if not given.contents:
            raise
    parse(given.as_written().values, str(path))  # its error shows references, not the contents of their files
    raise ConfigInvalid(
        f"{path}: the contents of {', '.join(given.contents)} cannot be used", "correct the contents of these files"
    )


def parse(values: Mapping[str, Any], where: str = "the reaper file") -> ReaperConfig:
    """The configuration of these values. Raises ConfigInvalid with all defects."""
    wrong: list[str] = []
    top = _section(values, "", ("harvest", "logging"), wrong)
    given = _section(top.get("harvest"), "harvest", (*_STRINGS, *_MAPPINGS, "limits"), wrong)
    logging = _section(top.get("logging"), "logging", ("level",), wrong)
    limits = _section(given.get("limits"), "harvest.limits", tuple(_LIMITS), wrong)
    level = str(logging.get("level", "debug")).lower()
    if level not in LEVELS:
        wrong.append(f"logging.level: {level} {unknown(level, LEVELS)}")
    facts: dict[str, Any] = _read(given, _STRINGS, _string, wrong) | _read(given, _MAPPINGS, _mapping, wrong)
    found = _read(limits, {key: one.name for key, one in _LIMITS.items()}, _number, wrong)
    wrong += Limits(**found).complaints(frozenset(found))
    if not wrong:
        try:
            return ReaperConfig(harvest=HarvestConfig(**facts, limits=Limits(**found)), level=level)
        except ConfigInvalid as error:
            wrong.append(error.message)
    raise ConfigInvalid(f"{where}: {'; '.join(wrong)}", "correct the file; docs/goharvest.md has every key")


def _section(values: Any, name: str, known: tuple[str, ...], wrong: list[str]) -> Mapping[str, Any]:
    """A section without its unknown keys."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        wrong.append(f"{name}: must consist of keys and values")
        return {}
    wrong += [f"{f'{name}.{key}'.lstrip('.')} {unknown(str(key), known)}" for key in values if key not in known]
    return {key: value for key, value in values.items() if key in known}


def _read(given: Mapping[str, Any], names: Mapping[str, str], take: Callable[[str, Any], Any], wrong: list[str]) -> dict[str, Any]:
    """The values of these keys, by the names of their fields."""
    found: dict[str, Any] = {}
    for key, name in names.items():
        if given.get(key) is not None:
            try:
                found[name] = take(key, given[key])
            except (TypeError, ValueError) as error:
                wrong.append(f"{key}: {error}")
    return found


def _string(key: str, value: Any) -> str:
    if isinstance(value, Mapping | list | bool):
        raise TypeError("must be text")
    return str(value)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("must consist of keys and values")
    return dict(value)


def _number(key: str, value: Any) -> int:
    if _LIMITS[key].metadata["is_span"]:
        return nanoseconds(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
