"""Creation of the two topics, members of groups, and deletion of records."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from penstock.coordinators.kafka.address import Address
from penstock.coordinators.kafka.client import Ear, confluent, settings
from penstock.errors import StateInvalid
from penstock.kafka.answer import answered

KEEPING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The required settings of the state topic: only Penstock deletes records."""
PASSING = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"}
"""The settings of a new leader topic: old heartbeats are worthless."""
SLOW = 15.0
"""Seconds to wait for slow requests."""
_MOVING = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
"""Errors of a broker that has just started, or that takes over the groups of another one. They pass."""
_PACE = 0.1
"""Seconds between two requests to such a broker."""


def admin(place: Address, ear: Ear) -> Any:
    """A client for the functions of this module."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(settings(place, ear))


def make(admin: Any, place: Address, ear: Ear) -> None:
    """Make both topics if they are missing. Raises StateInvalid if the state topic deletes records."""
    from confluent_kafka.admin import NewTopic

    known = examine(admin, place, ear)
    wanted = {place.topic: KEEPING, place.leader_topic: PASSING}
    missing = [NewTopic(name, 1, -1, config=config) for name, config in wanted.items() if name not in known]
    for name, done in admin.create_topics(missing, request_timeout=SLOW).items() if missing else ():
        with ear.translated(f"making the topic {name}", ignored="TOPIC_ALREADY_EXISTS"):
            answered(done)


def examine(admin: Any, place: Address, ear: Ear) -> Collection[str]:
    """The existing topics; nothing is changed. Raises StateInvalid if the state topic deletes records."""
    with ear.translated("asking for the topics"):
        known: Collection[str] = admin.list_topics(timeout=place.patience).topics.keys()
    if place.topic in known:
        _examine(admin, place, ear)
    return known


def members(admin: Any, place: Address, ear: Ear, group: str) -> Sequence[str]:
    """The client ids of the members of this group.

    Not by `describe_consumer_groups`: librdkafka up to 2.16 aborts the process if the connection ends at that moment (its
    pull request 5397). A user who may not describe the group sees no members.
    """
    deadline = time.monotonic() + place.patience
    while True:
        found, error = _groups(admin, group, max(deadline - time.monotonic(), _PACE))
        if error is None:
            return [member.client_id for one in found for member in one.members]
        if error.name() not in _MOVING or time.monotonic() + _PACE >= deadline:
            raise ear.told(error, "looking at the group")
        time.sleep(_PACE)


def delete_before(admin: Any, place: Address, ear: Ear, offset: int) -> bool:
    """Delete the records before a checkpoint; False if this user may not."""
    kafka = confluent()
    at = [kafka.TopicPartition(place.topic, 0, offset)]
    # The leader's heartbeat waits for this call, so the call does not wait for all replicas.
    [done] = admin.delete_records(at, request_timeout=SLOW, operation_timeout=0).values()
    try:
        answered(done)
    except kafka.KafkaException as error:
        if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
            return False
        if error.args[0].name() != "REQUEST_TIMED_OUT":  # the leader of the partition has done it, the others follow
            raise ear.told(error.args[0], "deleting old records") from None
    return True


def _groups(admin: Any, group: str, seconds: float) -> tuple[Sequence[Any], Any]:
    """The groups of this name, and the first error; None if there is none."""
    kafka = confluent()
    try:
        found = admin.list_groups(group, timeout=seconds)
    except kafka.KafkaException as error:
        return (), error.args[0]
    return found, next((one.error for one in found if one.error), None)


def _examine(admin: Any, place: Address, ear: Ear) -> None:
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource, found = ConfigResource(ResourceType.TOPIC, place.topic), dict[str, Any]()
    # Without this right, a missing record is detected when the topic is read.
    with ear.translated("looking at the topic", ignored="TOPIC_AUTHORIZATION_FAILED"):
        [done] = admin.describe_configs([resource], request_timeout=SLOW).values()
        found = answered(done)
    wrong = [f"{name}={found[name].value}" for name, value in KEEPING.items() if name in found and found[name].value != value]
    if wrong:
        right = ",".join(f"{name}={value}" for name, value in KEEPING.items())
        raise StateInvalid(
            f"the topic {place.topic} deletes records of the state ({', '.join(wrong)})",
            f"kafka-configs.sh --alter --entity-type topics --entity-name {place.topic} --add-config {right}",
        )
