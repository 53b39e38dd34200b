"""goharvest's file: every key, its defaults, its complaints, and the pipeline that comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from penstock.config import parse as parse_pipeline
from penstock.errors import ConfigInvalid
from penstock.harvest import HarvestConfig, Limits
from penstock.harvest.config import MS, S, load, parse
from penstock.harvest.spelling import nanoseconds
from penstock.harvest.translation import database, file_of, pipeline, pipeline_name, state

FULL = """
harvest:
  baseKafkaConfig:
    bootstrap.servers: broker-1:9092,broker-2
    security.protocol: sasl_ssl
    sasl.mechanism: PLAIN
    sasl.username: app
    sasl.password: s3cret
  producerKafkaConfig:
    compression.type: lz4
    acks: all
  leaderTopic: my-app-name
  leaderGroupID: my-app-name
  dataSource: host=db port=5433 user=app password='p ss\\'s' dbname=shop sslmode=disable binary_parameters=yes
  outboxTable: shop.outbox
  name: one
  limits:
    ioErrorBackoff: 1s
    pollDuration: 1ms
    minPollInterval: 99ms
    maxPollInterval: 98ms5ms
    heartbeatTimeout: 15s
    queueTimeout: 1m30s
    drainInterval: 31s
    markBackoff: 5ms
    maxInFlightRecords: 50
    sendConcurrency: 12
    sendBuffer: 0
    markQueryRecords: 200
    minMetricsInterval: 10s
logging:
  level: Info
"""


def limits(**given: Any) -> Limits:
    return parse({"harvest": {"limits": given}}).harvest.limits


def refused(**given: Any) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        limits(**given)
    return caught.value.message


def test_a_file_with_every_key_says_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "reaper.yaml").write_text(FULL)
    found = load(tmp_path / "reaper.yaml")
    harvest = found.harvest
    assert (found.level, harvest.name, harvest.leader_topic, harvest.outbox_table) == ("info", "one", "my-app-name", "shop.outbox")
    assert harvest.limits == Limits(
        io_error_backoff=S,
        poll_duration=MS,
        min_poll_interval=99 * MS,
        max_poll_interval=103 * MS,
        heartbeat_timeout=15 * S,
        queue_timeout=90 * S,
        drain_interval=31 * S,
        mark_backoff=5 * MS,
        max_in_flight_records=50,
        send_concurrency=12,
        send_buffer=0,
        mark_query_records=200,
        min_metrics_interval=10 * S,
    )
    assert "s3cret" not in repr(found)


def test_an_empty_file_means_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "reaper.yaml").write_text("")
    found = load(tmp_path / "reaper.yaml")
    assert found.level == "debug"
    assert found.harvest.limits == Limits().complete()
    assert (found.harvest.leader_group_id, found.harvest.leader_topic) == ("reaper", "reaper.neli")
    assert found.harvest.base_kafka_config == {"bootstrap.servers": "localhost:9092"}
    assert found.harvest.name
    assert parse({"harvest": {"limits": None}, "logging": None}).level == "debug"


def test_intervals_follow_from_the_heartbeat_timeout() -> None:
    assert (limits(heartbeatTimeout="40s").max_poll_interval, limits(heartbeatTimeout="40s").drain_interval) == (20 * S, 20 * S)
    assert limits(heartbeatTimeout="40s", queueTimeout="15s").drain_interval == 15 * S
    assert (limits().max_poll_interval, limits().drain_interval) == (2500 * MS, 2500 * MS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ioErrorBackoff": -1}, "IOErrorBackoff: must be no less than 0."),
        ({"drainInterval": 0}, "DrainInterval: cannot be blank."),
        ({"drainInterval": "1ns"}, "DrainInterval: must be no less than 1ms."),
        ({"sendConcurrency": -1}, "SendConcurrency: must be no less than 1."),
        ({"maxInFlightRecords": 0}, "MaxInFlightRecords: cannot be blank."),
        ({"minPollInterval": "200ms", "maxPollInterval": "100ms"}, "MaxPollInterval: must be no less than 200ms."),
        ({"sendBuffer": -1}, "SendBuffer: must be no less than 0."),
        ({"markBackof": "1s"}, "harvest.limits.markBackof is unknown: did you mean markBackoff?"),
        ({"markBackoff": "soon"}, "markBackoff: 'soon' is not a duration"),
        ({"markQueryRecords": "many"}, "markQueryRecords: 'many' is not a whole number"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_goharvests_words(given: dict[str, Any], said: str) -> None:
    assert said in refused(**given)


@pytest.mark.parametrize(
    ("harvest", "said"),
    [
        ({"producerKafkaConfig": {"enable.idempotence": False}}, "cannot override configuration 'enable.idempotence'"),
        ({"leaderTopic": "a%b"}, "LeaderTopic: must be in a valid format."),
        ({"dataSource": ""}, "DataSource: cannot be blank."),
        ({"outboxTable": ""}, "OutboxTable: cannot be blank."),
        ({"baseKafkaConfig": "x"}, "baseKafkaConfig: must consist of keys and values"),
        ({"leaderGroupId": "x"}, "did you mean leaderGroupID?"),
    ],
)
def test_a_key_that_cannot_be_is_refused(harvest: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse({"harvest": harvest, "logging": {"level": "warn"}})
    assert said in caught.value.message


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse({"harvest": {"limits": {"sendBuffer": -1}, "x": 1}, "logging": {"level": "loud"}, "more": {}})
    assert all(word in caught.value.message for word in ("SendBuffer", "harvest.x", "logging.level", "more"))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1h2m3.5s", 3723.5 * S),
        ("500ms", 500 * MS),
        ("10us", 10_000),
        ("1.5µs", 1500),
        ("-1s", -S),
        ("0", 0),
        (5, 5),
        (".5s", S / 2),
    ],
)
def test_durations_are_spelled_as_in_go(text: Any, span: float) -> None:
    assert nanoseconds(text) == span


@pytest.mark.parametrize("text", ["", "5", "1 s", "1d", "s", "1s2", None, True, 1.5])
def test_what_go_does_not_take_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        nanoseconds(text)


def test_the_pipeline_is_an_outbox_read_by_marks_a_barrier_and_an_election_in_kafka(tmp_path: Path) -> None:
    (tmp_path / "reaper.yaml").write_text(FULL)
    values = pipeline(load(tmp_path / "reaper.yaml").harvest)
    made = parse_pipeline(values, tmp_path)
    assert made.name == "my-app-name"
    assert (made.source.table, made.source.mark_query_records, made.source.mark_backoff.total_seconds()) == (
        "shop.outbox",
        200,
        0.005,
    )
    assert (made.sink.delivery, made.sink.max_in_flight_records) == ("barrier", 50)
    assert made.sink.config["compression.type"] == "lz4"
    assert made.sink.config["partitioner"] == "consistent_random"
    assert "acks" not in made.sink.config
    assert (made.sink.retry.tries, made.sink.retry.then, made.sink.retry.min.total_seconds()) == ("forever", "dead-letter", 1.0)
    place = made.state.where
    assert (place.servers, place.topic) == ("broker-1:9092,broker-2:9092", "my-app-name.state")
    assert (place.leader_topic, place.group("any"), place.deadline, place.session) == ("my-app-name", "my-app-name", 15.0, 45.0)
    assert place.settings["security.protocol"] == "sasl_ssl"
    assert place.settings["sasl.password"] == "s3cret"


def test_the_pipeline_file_that_is_printed_says_the_same(tmp_path: Path) -> None:
    values = pipeline(HarvestConfig(leader_group_id="a", data_source="dbname=x password=${not-a-variable}"))
    (tmp_path / "pipeline.yaml").write_text(file_of(values))
    from penstock.config import load as load_pipeline

    assert load_pipeline(tmp_path / "pipeline.yaml") == parse_pipeline(values, tmp_path)
    assert yaml.safe_load(file_of(values))["source"]["reader"] == "mark"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("host=localhost user=postgres password= dbname=postgres sslmode=disable", {"dbname": "postgres", "sslmode": "disable"}),
        (
            r"user=app password=a\ b\'c host=/run/pg",
            {"password": "a b'c", "dbname": "app", "host": "/run/pg", "sslmode": "require"},
        ),
        ("postgresql://u@h/d", {"user": "u", "dbname": "d"}),
    ],
)
def test_a_data_source_of_go_becomes_an_address(source: str, expected: dict[str, str]) -> None:
    assert expected.items() <= conninfo_to_dict(database(source)).items()


def test_a_data_source_that_is_none_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigInvalid, match="DataSource: must be in a valid format"):
        database("my s3cret")


def test_names_that_are_too_long_for_a_pipeline_are_cut_and_stay_different() -> None:
    one, two = pipeline_name("x" * 100 + "1"), pipeline_name("x" * 100 + "2")
    assert one != two
    assert len(one) == 64
    assert pipeline_name("orders") == "orders"


def test_acks_can_only_be_all() -> None:
    with pytest.raises(ConfigInvalid, match="'acks'"):
        pipeline(HarvestConfig(producer_kafka_config={"acks": 1}))


def test_no_password_of_a_broker_shows_in_what_is_told_of_the_state() -> None:
    url = state(HarvestConfig(base_kafka_config={"bootstrap.servers": "a:1", "sasl.password": "s&c=ret"}))
    assert parse_pipeline({**pipeline(HarvestConfig()), "state": url}).state.where.settings["sasl.password"] == "s&c=ret"
