"""The client library and its settings: what we choose, what a person may choose, and what nobody may."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ConfigInvalid

Setting = str | int | float | bool

OURS = (
    "acks",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "group.id",
    "message.timeout.ms",
    "request.required.acks",
    "transactional.id",
)
"""What decides about order, loss and repeats is not for choosing."""

_MISSING = "sink kafka needs the library confluent-kafka", "pip install 'penstock[kafka]'"

# murmur2: keys go to the same partitions as with Java's producers, and records without a key to one, so that they keep their order.
_COMMON: Mapping[str, Setting] = {
    "partitioner": "murmur2",
    "linger.ms": 0,
    "topic.metadata.propagation.max.ms": 10_000,
}

# librdkafka tries again for as long as it takes, since who gives up on one record must not go on with the next one of its key.
_PIPELINED: Mapping[str, Setting] = {"message.timeout.ms": 0, "enable.gapless.guarantee": True}

# What could not be sent within this time is given back: a leader that was asleep must not send, once it wakes, what its successor
# has sent already.
_BARRIER: Mapping[str, Setting] = {"message.timeout.ms": 4000}

# A transaction that follows close on another waits for that one to be complete: by default 100 ms at a time.
_TRANSACTIONAL: Mapping[str, Setting] = {"retry.backoff.ms": 1, "transaction.timeout.ms": 300_000}


def is_installed() -> bool:
    """Whether the library is there."""
    return importlib.util.find_spec("confluent_kafka") is not None


def confluent() -> Any:
    """The library. Raises ConfigInvalid where it is not installed."""
    if not is_installed():
        raise ConfigInvalid(*_MISSING)
    import confluent_kafka

    return confluent_kafka


def check(config: Mapping[str, Setting]) -> None:
    """Raise ValueError for settings that the library does not take. Values are not quoted: they may be secret."""
    for name in config:
        if name in OURS or name.endswith("_cb"):
            raise ValueError(f"config.{name} is decided by Penstock itself: remove it; `delivery` is for choosing")
    if not str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "").strip():
        raise ValueError('config has no bootstrap.servers: write one like bootstrap.servers: "127.0.0.1:9092"')
    if not is_installed():
        raise ValueError(f"{_MISSING[0]}: {_MISSING[1]}")
    kafka = confluent()
    servers = ("bootstrap.servers", "metadata.broker.list")
    try:  # without a server it speaks to nobody
        mute = {name: value for name, value in config.items() if name not in servers}
        kafka.Producer({**_plain({**_COMMON, **mute}), "enable.idempotence": True, "logger": _quiet()})
    except kafka.KafkaException as error:
        raise ValueError(f"config: {error.args[0].str()}; librdkafka's CONFIGURATION.md has them all") from None


def pipelined(config: Mapping[str, Setting], pipeline: str, hear: Callable[[Any], None]) -> dict[str, Any]:
    """The settings of an idempotent producer."""
    return _producer(_PIPELINED, config, pipeline, hear)


def one_by_one(config: Mapping[str, Setting], pipeline: str, hear: Callable[[Any], None]) -> dict[str, Any]:
    """The same for one that never has two records under way, and so need not end where one is refused."""
    return pipelined(config, pipeline, hear) | {"enable.gapless.guarantee": "false"}


def barrier(config: Mapping[str, Setting], pipeline: str, hear: Callable[[Any], None]) -> dict[str, Any]:
    """The settings of an idempotent producer that has at most one record of a key."""
    return _producer(_BARRIER, config, pipeline, hear)


def transactional(config: Mapping[str, Setting], pipeline: str, name: str, hear: Callable[[Any], None]) -> dict[str, Any]:
    """The settings of a producer that nobody else of this name can be beside."""
    return _producer(_TRANSACTIONAL, config, pipeline, hear) | {"transactional.id": name}


def _producer(
    own: Mapping[str, Setting], config: Mapping[str, Setting], pipeline: str, hear: Callable[[Any], None]
) -> dict[str, Any]:
    chosen = {"client.id": f"penstock-{pipeline}", **_COMMON, **own, **config}
    return {**_plain(chosen), "enable.idempotence": True, "error_cb": hear, "logger": _quiet()}


_OF_CONNECTIONS = (
    "bootstrap.servers",
    "metadata.broker.list",
    "client.",
    "sasl.",
    "security.",
    "ssl.",
    "socket.",
    "enable.ssl",
    "broker.",
)


def others(config: Mapping[str, Setting], hear: Callable[[Any], None] | None = None) -> dict[str, Any]:
    """The settings of a client that does not produce: those that are about connections."""
    chosen = {name: value for name, value in config.items() if name.startswith(_OF_CONNECTIONS)}
    return {**_plain(chosen), **({"error_cb": hear} if hear else {}), "logger": _quiet()}


def _quiet() -> Any:
    """Where the library's own lines go: what matters of them is told by events and errors."""
    logger = logging.getLogger("penstock.kafka")
    logger.propagate, logger.disabled = False, True
    return logger


def _plain(config: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}
