"""To Kafka: what it never takes, what goes from one table to another, and changes exactly once whatever is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from moving import KEYS, Moving
from parking import PASSWORD, Parking

from deadline import until
from fix_rig import TERM, Rig
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sources.sqlite.source import LANE
from program import Program
from servers.broker import Broker
from servers.postgres import PostgresServer

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
        content = {"name": self.name, "source": source, "sink": sink, "state": "state.db", "term": TERM, "transform": TRANSFORM}
        self.file.write_text(yaml.safe_dump(content))

    def fill(self) -> None:
        """Thirty rows before there is a pipeline."""
        with self.shop.transaction() as work:
            for number in range(1, 31):
                work.put("customers", id=number, name=f"Ann {number}", email=None)
        self.before = self.shop.head

    def start_on(self, *files: Path) -> Program:
        """Start a process on these files, which need not have the shop's among them."""
        self.programs.append(program := Program(self.folder, *files))
        return program

    def came(self) -> list[dict[str, Any]]:
        """What a consumer with read_committed has."""
        return [json.loads(record.value) for record in self.broker.records(self.topic)]

    def kept(self) -> int | None:
        """Where the watermark stands in Kafka."""
        sink = KafkaSink(config={"bootstrap.servers": self.broker.servers})
        mark = GroupWatermark(sink, self.name, LANE).read()
        return mark.position if mark else None


@dataclass
class Story:
    """Three processes, one after the other: one parks messages, and reads by marks; the next one reads the table that follows."""

    parking: Parking
    moving: Moving
    worn: KafkaRig
    programs: list[Program] = field(default_factory=list)

    def start(self, *files: Path) -> Program:
        self.programs.append(program := self.worn.start_on(*files))
        return program


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, broker: Broker, kafka_authority: trustme.CA
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("kafka")
    parking, moving = Parking(folder, postgres_server, broker, kafka_authority), Moving(folder, postgres_server, broker)
    with KafkaRig(folder / "shop", broker) as rig:
        rig.leaving += [moving.end, *(partial(postgres_server.drop_database, one.dsn) for one in (parking, moving))]
        made = Story(parking, moving, rig)
        first = made.start(parking.file, moving.before)
        parking.park(first)
        parking.mend(first)
        moving.begin(first)
        assert first.terminate() == 0
        rig.fill()
        second = made.start(rig.file, moving.after)
        moving.finish(second)
        wear(rig, second)
        yield made


def wear(rig: KafkaRig, program: Program) -> None:
    """Four kills: the worker with a transaction open, the worker behind its commit, and both times the whole program."""
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
    rig.start().until_event("LaneClaimed")
    rig.until_settled()
    with rig.shop.transaction() as work:
        work.put("stock", sku="dropped", on_hand=1)
    rig.until_settled()


@pytest.fixture(scope="module")
def worn(story: Story) -> KafkaRig:
    return story.worn


def test_what_was_committed_and_not_recorded_is_not_repeated(worn: KafkaRig) -> None:
    assert worn.committed > worn.recorded, "the kill came too late to prove anything"
    assert worn.programs[-1].events("LaneClaimed")[0]["position"] >= worn.committed


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


def test_what_kafka_never_takes_is_parked_and_sent_again_once_that_is_mended(story: Story) -> None:
    parking = story.parking
    assert sorted(parking.came) == [*(f"{n:03}" for n in range(150)), "a1"]
    waiting = [(one["key"]["key"], one["behind"]) for one in parking.letters]
    assert waiting == [("a", False), ("a", True), ("b", False), ("c", False), ("d", False)]
    reasons = [one["message"] for one in parking.letters if not one["behind"]]
    expected = ["MSG_SIZE_TOO_LARGE", "UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "unequal number of header keys (1)"]
    assert all(word in reason for word, reason in zip(expected, reasons, strict=True)), reasons
    seen = parking.seen
    assert (seen["state"], seen["dead"], seen["error"], seen["position"]) == ("leading", 5, None, 156)
    code, outcomes = parking.redriven
    assert (code, [one["outcome"] for one in outcomes]) == (1, ["sent", "sent", "sent", "sent", "failed"])
    assert [one for one in parking.mended[parking.topic] if one.startswith("a")] == ["a1", "a2.......", "a3"]
    assert (parking.mended[parking.later], parking.mended[parking.barred]) == (["b1"], ["c1"])
    assert PASSWORD not in story.programs[0].said()


def test_nothing_is_lost_and_no_key_goes_back_on_the_way_from_mark_to_snapshot(story: Story) -> None:
    made, came = story.moving.made(), story.moving.came()
    assert sorted(made) == sorted(KEYS)
    for key, last in made.items():
        assert [value for value, _ in groupby(came[key])] == [str(number) for number in range(1, last + 1)]
