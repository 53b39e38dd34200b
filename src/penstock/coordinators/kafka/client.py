"""The client library: its settings, and the translation of its errors."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.coordinators.kafka.address import Address
from penstock.errors import ConfigInvalid, PenstockError, StateInvalid, StateUnavailable

_REFUSED = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"}
_FORBIDDEN = {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}
_REACHABLE = "check that the brokers run and are reachable from this machine"
_RIGHTS = "permit its user to read, write, create, describe and delete records of both topics, and to read the group"


def confluent() -> Any:
    """The library. Raises ConfigInvalid where it is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigInvalid("state in Kafka needs the library confluent-kafka", "pip install 'penstock[kafka]'")
    import confluent_kafka

    return confluent_kafka


def settings(place: Address, on_error: Any, **own: Any) -> dict[str, Any]:
    """The settings of a client of the library."""
    logger = logging.getLogger("penstock.kafka")
    logger.propagate, logger.disabled = False, True  # errors report everything of importance
    shared = {"bootstrap.servers": place.servers, "error_cb": on_error, "logger": logger, "reconnect.backoff.max.ms": 500}
    return {**shared, **place.settings, **own}


def check(place: Address) -> None:
    """Raise ConfigInvalid for settings that the library refuses. Values are not quoted: they may be secret."""
    kafka = confluent()
    mute = {name: value for name, value in settings(place, None).items() if name not in ("bootstrap.servers", "error_cb")}
    try:
        kafka.Producer(mute)
    except kafka.KafkaException as error:
        raise ConfigInvalid(f"state: {error.args[0].str()}", "librdkafka's CONFIGURATION.md lists all settings") from None


class Ear:
    """The last error of the connections of clients; a refusal takes precedence."""

    def __init__(self, place: Address) -> None:
        self._place = place
        self._last: Any = None

    def __call__(self, error: Any) -> None:
        """Note an error of a connection."""
        if self._last is None or self._last.name() not in _REFUSED:
            self._last = error

    def forget(self) -> None:
        """Forget the error: the brokers have answered."""
        self._last = None

    def told(self, error: Any, doing: str) -> PenstockError:
        """The error of Penstock for an error of the library."""
        if error.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT") and self._last is not None:
            error, self._last = self._last, None
        fact = f"cannot use the state in {self._place.shown}: {doing}: {error.name().lstrip('_')}: {error.str()}"
        if error.name() in _REFUSED:
            return StateInvalid(fact, "correct sasl.* and ssl.* in the address under `state`")
        if error.name() in _FORBIDDEN:
            return StateInvalid(fact, _RIGHTS)
        return StateUnavailable(fact, _REACHABLE)

    @contextmanager
    def translated(self, doing: str, ignored: str = "") -> Iterator[None]:
        """Raise errors of the library as errors of Penstock; leave the block at the `ignored` one."""
        kafka = confluent()
        try:
            yield
        except kafka.KafkaException as error:
            if error.args[0].name() != ignored:
                raise self.told(error.args[0], doing) from None
