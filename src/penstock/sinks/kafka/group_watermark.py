"""The watermark of a lane in Kafka: offsets of a group, written in the transaction that delivers the changes up to it.

The offset is the position, and its metadata the cursor. Kafka accepts 4 096 bytes of metadata for each partition, so a long
cursor is cut into pieces on several partitions of the progress topic, which has no records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import PenstockError, SinkRefused, SinkUnavailable
from penstock.kafka.answer import answered
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import ending, is_refusal
from penstock.sinks.kafka.settings import KafkaSettings

PARTITIONS = 16  # of the progress topic, if Penstock creates it
PIECE = 4000  # bytes of a piece: a little less than the default limit of brokers
STEP_SECONDS = 2.0
PATIENCE = 10.0  # seconds for one answer of the brokers


def pieces(watermark: Watermark) -> list[str]:
    """A watermark as the metadata of as many partitions as it needs, each with its number and the number of pieces."""
    text = json.dumps({"cursor": watermark.cursor, "delivered": watermark.delivered}, separators=(",", ":"))
    parts = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    return [f"{number}/{len(parts)}:{part}" for number, part in enumerate(parts)]


def joined(position: int, found: Sequence[str]) -> Watermark:
    """The watermark of these pieces; any after the last one are left from a longer cursor."""
    count = int(found[0].partition(":")[0].partition("/")[2])
    facts = json.loads("".join(piece.partition(":")[2] for piece in found[:count]))
    return Watermark(Cursor(facts["cursor"]), position, facts["delivered"])


class GroupWatermark:
    """The group of one lane; its name is also the transactional id, under which only one producer can be alive."""

    def __init__(self, sink: KafkaSettings, pipeline: str, lane: Lane) -> None:
        self._sink, self._pipeline, self._kafka = sink, pipeline, client.confluent()
        self.name, self.topic = f"penstock.{pipeline}.{lane}", sink.progress_topic
        self._last_error: Any = None

    def read(self) -> Watermark | None:
        """The stored watermark, after any transaction that is just being completed.

        Only after fencing: the transaction of a producer that died before its last step delays the answer until its timeout.
        """
        return self._asked("read_committed")

    def peek(self) -> Watermark | None:
        """The stored watermark, without transactions under way."""
        return self._asked("read_uncommitted")

    def _asked(self, isolation: str) -> Watermark | None:
        partitions = [self._kafka.TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        with closing(self._consumer(isolation)) as consumer:
            found = self._committed(consumer, partitions)
        if found[0].offset < 0:
            return None
        return joined(found[0].offset, [one.metadata or "" for one in found])

    def _committed(self, consumer: Any, partitions: Sequence[Any]) -> Sequence[Any]:
        """Repeat a short request: a refusal shows long before the last deadline."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found: Sequence[Any] = consumer.committed(partitions, timeout=STEP_SECONDS)
            except self._kafka.KafkaException as error:
                told = self.ending(error, "reading the watermark", consumer)
                if not isinstance(told, SinkUnavailable) or time.monotonic() > deadline:
                    raise told from None
            else:
                self._last_error = None
                return found

    def offsets(self, watermark: Watermark) -> list[Any]:
        """A watermark as offsets for a transaction."""
        parts = pieces(watermark)
        if len(parts) > PARTITIONS:
            raise SinkUnavailable(f"the cursor of {self.name} is too long for Kafka: {len(watermark.cursor)} characters")
        return [
            self._kafka.TopicPartition(self.topic, number, watermark.position, metadata=metadata)
            for number, metadata in enumerate(parts)
        ]

    def member(self) -> Any:
        """The committer of offsets: the group has no members.

        A client without servers returns it: one that was closed while it connected has aborted the process.
        """
        with closing(self._kafka.Consumer(client.others({}) | {"group.id": self.name})) as consumer:
            return consumer.consumer_group_metadata()

    def prepare(self) -> None:
        """Make the brokers ready to store a watermark."""
        from confluent_kafka.admin import AdminClient, NewTopic

        if (
            self.peek()
        ):  # this makes the brokers of a new cluster ready for groups: a transaction would wait for them without an end
            return
        admin = AdminClient(client.others(self._sink.config, self.on_error))
        wanted = NewTopic(self.topic, num_partitions=PARTITIONS, replication_factor=-1, config={"cleanup.policy": "compact"})
        try:
            answered(admin.create_topics([wanted], request_timeout=PATIENCE)[self.topic])
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._find(admin, error.args[0])
            elif error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.ending(error, f"creating the topic {self.topic}", admin) from None

    def _find(self, admin: Any, refusal: Any) -> None:
        """Look for an existing topic: brokers refuse its creation before they look."""
        try:
            found = admin.list_topics(self.topic, PATIENCE).topics[self.topic]
        except self._kafka.KafkaException as error:
            raise self.ending(error, f"looking for the topic {self.topic}", admin) from None
        if found.error is not None:
            way_out = (
                f"create it with {PARTITIONS} partitions and cleanup.policy=compact, or allow this pipeline's user to create topics"
            )
            raise SinkRefused(f"creating the topic {self.topic}: {refusal.name()}: {refusal.str()}", way_out)

    def strike(self) -> None:
        """Fence deliveries on this lane, and remove its watermark."""
        from confluent_kafka.admin import AdminClient

        producer = self._kafka.Producer(self.producer_settings())
        admin = AdminClient(client.others(self._sink.config, self.on_error))
        try:
            producer.init_transactions(PATIENCE)
            answered(admin.delete_consumer_groups([self.name], request_timeout=PATIENCE)[self.name])
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError.GROUP_ID_NOT_FOUND:
                raise self.ending(error, "removing the watermark", producer) from None

    def producer_settings(self) -> dict[str, Any]:
        """The settings of a producer that fences every other one of this lane."""
        own = {**client.TRANSACTIONAL, "transactional.id": self.name}
        return client.producing(own, self._sink.config, self._pipeline, self.on_error)

    def on_error(self, error: Any) -> None:
        """Note an error of connections; a refusal takes precedence."""
        if self._last_error is None or not is_refusal(self._last_error):
            self._last_error = error

    def ending(self, error: Any, doing: str, asked: Any) -> PenstockError:
        """The error to raise: without an answer, the last error of the connections has more information."""
        said = error.args[0]
        with suppress(self._kafka.KafkaException):  # a broken client reports nothing more
            asked.poll(0)
        is_silence = said.code() in (self._kafka.KafkaError._TIMED_OUT, self._kafka.KafkaError._TRANSPORT)
        return ending(self._last_error if is_silence and self._last_error else said, doing)

    def _consumer(self, isolation: str) -> Any:
        settings = client.others(self._sink.config, self.on_error)
        return self._kafka.Consumer({**settings, "group.id": self.name, "enable.auto.commit": False, "isolation.level": isolation})
