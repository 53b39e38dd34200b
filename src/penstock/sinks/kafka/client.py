"""The client library, imported late, and its settings: Penstock's, the pipeline file's, and the excluded ones."""

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
"""Settings that decide order, loss and repeats: the pipeline file cannot set them."""

# murmur2: keys go to the same partitions as with Java's producers, and records without a key to one, so that they keep their order.
_COMMON: Mapping[str, Setting] = {
    "partitioner": "murmur2",
    "linger.ms": 0,
    "topic.metadata.propagation.max.ms": 10_000,
}

# librdkafka retries without limit: a sender that gives up on a record must not send the next one of its key.
PIPELINED: Mapping[str, Setting] = {"message.timeout.ms": 0, "enable.gapless.guarantee": True}

# With at most one record under way, a refused one ends nothing.
ONE_BY_ONE: Mapping[str, Setting] = {**PIPELINED, "enable.gapless.guarantee": False}

# The library returns a record that it cannot send within this time: a leader that was suspended must not send later what its
# successor has sent.
BARRIER: Mapping[str, Setting] = {"message.timeout.ms": 4000}

# A transaction immediately after another waits until that one is complete: by default in steps of 100 ms.
TRANSACTIONAL: Mapping[str, Setting] = {"retry.backoff.ms": 1, "transaction.timeout.ms": 300_000}


def confluent() -> Any:
    """The library. Raises ConfigInvalid if it is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigInvalid("sink kafka needs the library confluent-kafka", "pip install 'penstock[kafka]'")
    import confluent_kafka

    return confluent_kafka


def check(config: Mapping[str, Setting]) -> None:
    """Raise ValueError for settings that the library refuses. Values are not quoted: they may be secret."""
    for name in config:
        if name in OURS or name.endswith("_cb"):
            raise ValueError(f"config.{name} is decided by Penstock itself: remove it; choose with `delivery`")
    if not str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "").strip():
        raise ValueError('config has no bootstrap.servers: write one like bootstrap.servers: "127.0.0.1:9092"')
    try:
        kafka = confluent()
    except ConfigInvalid as error:
        raise ValueError(f"{error.message}: {error.remedy}") from None
    servers = ("bootstrap.servers", "metadata.broker.list")
    try:  # without a server it opens no connection
        mute = {name: value for name, value in config.items() if name not in servers}
        kafka.Producer({**_plain({**_COMMON, **mute}), "enable.idempotence": True, "logger": _quiet()})
    except kafka.KafkaException as error:
        raise ValueError(f"config: {error.args[0].str()}; librdkafka's CONFIGURATION.md lists all settings") from None


def producing(
    own: Mapping[str, Setting], config: Mapping[str, Setting], pipeline: str, on_error: Callable[[Any], None]
) -> dict[str, Any]:
    """The settings of an idempotent producer with the settings `own` of its delivery."""
    chosen = {"client.id": f"penstock-{pipeline}", **_COMMON, **own, **config}
    return {**_plain(chosen), "enable.idempotence": True, "error_cb": on_error, "logger": _quiet()}


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


def others(config: Mapping[str, Setting], on_error: Callable[[Any], None] | None = None) -> dict[str, Any]:
    """The settings of a client that does not produce: those of connections."""
    chosen = {name: value for name, value in config.items() if name.startswith(_OF_CONNECTIONS)}
    return {**_plain(chosen), **({"error_cb": on_error} if on_error else {}), "logger": _quiet()}


def _quiet() -> Any:
    """A logger without output: events and errors report the relevant lines of the library."""
    logger = logging.getLogger("penstock.kafka")
    logger.propagate, logger.disabled = False, True
    return logger


def _plain(config: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}
