"""A user of Kafka who lacks a right hears which, and nothing goes round in circles."""

from contextlib import closing, contextmanager

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from deadline import PATIENCE, until
from messages import to_change
from penstock.change import Lane, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.errors import SinkRefused
from penstock.message import Message
from penstock.sink import Assignment
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.sink import KafkaSink

LANE = Lane("main")


@contextmanager
def without(broker, kind, name, operation):
    """The user `app` may not do this to this resource."""
    admin = AdminClient({"bootstrap.servers": broker.servers})
    about = (kind, name, ResourcePatternType.LITERAL, "User:app", "*")
    rules = [(operation, AclPermissionType.DENY), (AclOperation.DESCRIBE, AclPermissionType.ALLOW)]
    bars = [AclBinding(*about, *rule) for rule in rules]
    filters = [AclBindingFilter(*about, *rule) for rule in rules]
    for made in admin.create_acls(bars).values():
        made.result(PATIENCE)
    until(lambda: all(admin.describe_acls(one).result(PATIENCE) for one in filters))  # the broker learns of them later
    try:
        yield
    finally:
        for gone in admin.delete_acls(filters).values():
            gone.result(PATIENCE)


def sink_of(broker, **settings):
    user = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "app-secret"}
    config = {"bootstrap.servers": broker.secured, "security.protocol": "SASL_PLAINTEXT", **user}
    return KafkaSink(config=config, **settings)


def deliver(sink, topic, patience=PATIENCE):
    with closing(sink.open(Assignment(topic, LANE, 1, 0, "cafe", None, lambda event: None, has_messages=True))) as delivery:
        changes = [to_change(Message(topic, b"k", str(number).encode()), number) for number in (1, 2, 3)]
        assert delivery.offer(to_batch(changes), PATIENCE)
        if sink.delivery == "exactly-once":
            delivery.mark(Watermark(Cursor("{}"), 3, 3))
        assert delivery.drain(patience)


def test_a_watermark_that_may_not_be_written_ends_the_delivery_and_names_its_topic(broker):
    progress, topic = broker.create(partitions=16), broker.create()
    sink = sink_of(broker, progress_topic=progress)
    GroupWatermark(sink, topic, LANE).prepare()
    with without(broker, ResourceType.TOPIC, progress, AclOperation.READ), pytest.raises(SinkRefused, match=progress) as refused:
        deliver(sink, topic)
    assert "read, write and describe" in refused.value.remedy
    assert broker.records(topic) == []
    until(lambda: deliver(sink, topic) is None)
    assert len(broker.records(topic)) == 3


def test_who_may_not_make_topics_uses_the_one_that_is_there(broker):
    progress, topic = broker.create(partitions=16), broker.create()
    sink = sink_of(broker, progress_topic=progress)
    with without(broker, ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE):
        with without(broker, ResourceType.TOPIC, progress, AclOperation.CREATE):
            GroupWatermark(sink, topic, LANE).prepare()
        with without(broker, ResourceType.TOPIC, "not-there", AclOperation.CREATE), pytest.raises(SinkRefused) as refused:
            GroupWatermark(sink_of(broker, progress_topic="not-there"), topic, LANE).prepare()
    assert "create it with 16 partitions" in refused.value.remedy


@pytest.mark.parametrize("deed", [deliver, lambda sink, topic: sink.release(topic, [LANE])], ids=["deliver", "release"])
def test_who_may_not_have_transactions_is_told_so(broker, deed):
    topic = broker.create()
    sink = sink_of(broker)
    name = f"penstock.{topic}.main"
    with (
        without(broker, ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE),
        pytest.raises(SinkRefused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ):
        deed(sink, topic)


def test_who_delivers_at_least_once_needs_no_transactions(broker):
    topic = broker.create()
    sink = sink_of(broker, delivery="at-least-once")
    with without(broker, ResourceType.TRANSACTIONAL_ID, f"penstock.{topic}.main", AclOperation.WRITE):
        sink.release(topic, [LANE])
        deliver(sink, topic)
    assert len(broker.records(topic)) == 3
