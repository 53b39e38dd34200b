"""Rows that are there, then the stream, to Kafka exactly once: killed between sending and committing, behind it, and as a whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deadline import until
from fix_rig import Rig
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka.ledger import Ledger
from penstock.sources.sqlite.source import LANE
from penstock.testing.broker import Broker

RULES = """
def twice(change):
    return [change, change] if change.table == "orders" and change.op == "insert" else change
"""
TRANSFORM = {"where": "table <> 'stock'", "function": "rules:twice"}


class Silent:
    """No receiver: the far side is Kafka."""

    url = None


class KafkaRig(Rig):
    """A shop whose changes go to one topic with one partition, so that all of them have one order."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.broker, self.topic = broker, broker.create(partitions=1)
        super().__init__(folder, name=self.topic, receiver=Silent())
        (folder / "rules.py").write_text(RULES)

    def write(self, **_: Any) -> None:
        sink = {"type": "kafka", "config": {"bootstrap.servers": self.broker.servers}, "topic": self.topic}
        source = {"type": "sqlite", "database": "shop.db", "start": "snapshot"}
        content = {"name": self.name, "source": source, "sink": sink, "state": "state.db", "transform": TRANSFORM}
        self.file.write_text(yaml.safe_dump(content))

    def came(self) -> list[dict[str, Any]]:
        """What a consumer with read_committed has."""
        return [json.loads(record.value) for record in self.broker.records(self.topic)]

    def kept(self) -> int | None:
        """Where the watermark stands in Kafka."""
        sink = KafkaSink(config={"bootstrap.servers": self.broker.servers})
        mark = Ledger(sink, self.name, LANE).read()
        return mark.position if mark else None


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[KafkaRig]:
    """Four times killed: the worker with a transaction open, the worker behind its commit, and both times the whole program."""
    with KafkaRig(tmp_path_factory.mktemp("kafka"), broker) as rig:
        with rig.shop.transaction() as work:
            for number in range(1, 31):
                work.put("customers", id=number, name=f"Ann {number}", email=None)
        rig.before = rig.shop.head
        program = rig.start()
        until(lambda: rig.position >= rig.before, what=program.tail)
        for point in ("sink.sending", "sink.sent"):
            program.arm(point, "kill")
            rig.shop.sell(20)
            program.until_reached(point)
            rig.until_settled()
        program.arm("sink.sent", "pause")
        rig.shop.sell(20)
        program.until_reached("sink.sent")
        rig.recorded, rig.committed = rig.position, rig.kept()
        program.kill_tree()
        program = rig.start()
        program.until_event("LaneClaimed")
        rig.until_settled()
        with rig.shop.transaction() as work:
            work.put("stock", sku="dropped", on_hand=1)
        rig.until_settled()
        yield rig


def test_what_was_committed_and_not_recorded_is_not_repeated(worn: KafkaRig) -> None:
    assert worn.committed > worn.recorded, "the kill came too late to prove anything"
    assert worn.programs[1].events("LaneClaimed")[0]["position"] >= worn.committed


def test_a_consumer_sees_every_change_once_and_in_order(worn: KafkaRig) -> None:
    stream = [one for one in worn.came() if one["op"] != "refresh"]
    places = [(one["position"], one.get("ordinal", 0)) for one in stream]
    sold = [position for position, fact in worn.shop.log.items() if position > worn.before and fact["table"] == "orders"]
    assert places == [(position, ordinal) for position in sorted(sold) for ordinal in (1, 2)]


def test_rows_that_were_there_come_once(worn: KafkaRig) -> None:
    rows = Counter(json.dumps(one["key"]) for one in worn.came() if one["op"] == "refresh")
    assert sorted(rows) == sorted(json.dumps({"id": number}) for number in range(1, 31))
    assert set(rows.values()) == {1}


def test_each_change_names_the_one_before_it_whatever_was_killed(worn: KafkaRig) -> None:
    positions = sorted({one["position"] for one in worn.came() if one["op"] != "refresh"})
    named = {one["position"]: one["previous"] for one in worn.came() if one["op"] != "refresh" and one.get("ordinal") == 1}
    assert [named[position] for position in positions[1:]] == positions[:-1]


def test_the_watermark_passes_what_a_condition_drops_without_a_transaction(worn: KafkaRig) -> None:
    assert worn.position == worn.shop.head
    assert worn.kept() < worn.shop.head
