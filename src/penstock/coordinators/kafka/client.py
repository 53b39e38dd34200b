"""The client library: its settings, and what its errors mean for the state."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from penstock.coordinators.kafka.address import PATIENCE, Place
from penstock.errors import ConfigInvalid, PenstockError, StateInvalid, StateUnavailable

_REFUSED = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"}
_FORBIDDEN = {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}
_REACHABLE = "see that the brokers run and can be reached from here"
_RIGHTS = "let its user read, write, create, describe and delete records of both topics, and read the group"


def confluent() -> Any:
    """The library. Raises ConfigInvalid where it is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigInvalid("state in Kafka needs the library confluent-kafka", "pip install 'penstock[kafka]'")
    import confluent_kafka

    return confluent_kafka


def settings(place: Place, hear: Any, **own: Any) -> dict[str, Any]:
    """For a client of the library."""
    logger = logging.getLogger("penstock.kafka")
    logger.propagate, logger.disabled = False, True  # what matters is told by errors
    ours = {"bootstrap.servers": place.servers, "error_cb": hear, "logger": logger, "reconnect.backoff.max.ms": 500}
    return {**ours, **place.settings, **own}


def check(place: Place) -> None:
    """Raise ConfigInvalid for settings that the library does not take. Values are not quoted: they may be secret."""
    kafka = confluent()
    mute = {name: value for name, value in settings(place, None).items() if name not in ("bootstrap.servers", "error_cb")}
    try:
        kafka.Producer(mute)
    except kafka.KafkaException as error:
        raise ConfigInvalid(f"state: {error.args[0].str()}", "librdkafka's CONFIGURATION.md has all settings") from None


class Ear:
    """Hears what clients say of their connections; that we were refused says most."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._heard: Any = None

    def __call__(self, error: Any) -> None:
        """Hear this."""
        if self._heard is None or self._heard.name() not in _REFUSED:
            self._heard = error

    def forget(self) -> None:
        """The brokers have answered: what was heard before is over."""
        self._heard = None

    def told(self, error: Any, doing: str) -> PenstockError:
        """The error of ours for one of the library's."""
        if error.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT") and self._heard is not None:
            error, self._heard = self._heard, None
        said = f"cannot use the state in {self._place.shown}: {doing}: {error.name().lstrip('_')}: {error.str()}"
        if error.name() in _REFUSED:
            return StateInvalid(said, "correct sasl.* and ssl.* in the address under `state`")
        if error.name() in _FORBIDDEN:
            return StateInvalid(said, _RIGHTS)
        return StateUnavailable(said, _REACHABLE)

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """The library's errors as ours."""
        kafka = confluent()
        try:
            yield
        except kafka.KafkaException as error:
            raise self.told(error.args[0], doing) from None


def closed(consumer: Any) -> None:
    """Close a consumer, which leaves its group; brokers that do not answer are not waited for without an end."""
    closing = Thread(target=consumer.close, daemon=True, name="closing")
    closing.start()
    closing.join(PATIENCE)
