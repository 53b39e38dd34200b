"""The check of `doctor` for a Kafka sink: the brokers can be reached, they accept the credentials, and the topic exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.finding import Check, Finding, failed, ok, warning
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import ending
from penstock.sinks.kafka.sink import KafkaSink

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline

PATIENCE = 10.0


def checks(pipeline: Pipeline, *, probes: bool) -> Mapping[str, Check]:
    """The checks by name."""
    return {"brokers": partial(brokers, pipeline.sink)}  # type: ignore[arg-type]


def brokers(sink: KafkaSink) -> Iterator[Finding]:
    """Connect, and read the list of topics; nothing is sent."""
    try:
        topics, count = _asked(sink)
    except PenstockError as error:
        yield failed("brokers", error.message, error.remedy)
        return
    yield ok("brokers", f"{count} broker{'s' if count > 1 else ''} with {len(topics)} topics can be reached")
    if sink.topic and "{" not in sink.topic and sink.topic not in topics:
        yield warning("brokers", f"topic {sink.topic} does not exist", "create it, unless the brokers create topics by themselves")


def _asked(sink: KafkaSink) -> tuple[set[str], int]:
    from confluent_kafka.admin import AdminClient

    kafka, errors = client.confluent(), list[Any]()
    admin = AdminClient(client.others(sink.config, errors.append))
    try:
        found = admin.list_topics(timeout=PATIENCE)
    except kafka.KafkaException as error:
        admin.poll(0)
        specific = [one for one in errors if one.code() != kafka.KafkaError._ALL_BROKERS_DOWN]
        raise ending(specific[-1] if specific else error.args[0], "the brokers do not answer") from None
    return set(found.topics), len(found.brokers)
