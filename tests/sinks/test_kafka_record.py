"""What a record holds, and what a pipeline file may say about it."""

import json

import pytest

from messages import to_change
from penstock import config
from penstock.change import Change, Lane, Op, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.errors import ConfigInvalid
from penstock.message import Message, document
from penstock.sink import Assignment
from penstock.sinks.kafka.group_watermark import PIECE, joined, pieces
from penstock.sinks.kafka.record import Record, Recorder, Unfit
from penstock.sinks.kafka.sink import KafkaSink

ROW = Change(12, Op.UPDATE, "orders", '{"id":7}', '{"id":7,"total":1.50}', '{"id":7,"total":2.50}', at=0)


def recorded(*changes, has_messages=False, **settings):
    assignment = Assignment("shop", Lane("main"), 3, 0, "cafe", 11, print, has_messages=has_messages)
    sink = KafkaSink(config={"bootstrap.servers": "127.0.0.1:1"}, **settings)
    made = Recorder(sink, assignment).records(to_batch(changes))
    assert [change for change, _ in made] == list(changes)
    return [record for _, record in made]


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"k", b"v", [("trace", b"1"), ("trace", b"2"), ("none", None)]),
        Message("orders", b"k", None),
        Message("orders", None, b""),
        Message("orders", b"\xff\x00", b"\xfe\x01", [("raw", b"\xfd")]),
    ],
    ids=["headers", "tombstone", "no key", "binary"],
)
def test_a_message_stays_what_it_was_to_the_byte(message):
    record = Record("orders", message.key, message.value, list(message.headers))
    assert recorded(to_change(message, 5), has_messages=True) == [record]
    assert recorded(document(to_change(message, 5)), has_messages=True) == [record]


def test_a_message_goes_to_another_topic_if_the_file_says_so():
    [record] = recorded(to_change(Message("orders", b"k", b"v"), 5), topic="eu.{table}", has_messages=True)
    assert record.topic == "eu.orders"


def test_a_message_that_cannot_be_read_is_unfit():
    spoilt = document(to_change(Message("orders", b"k", b"v"), 5)).replace(after='{"value":"v","headers":[["only a name"]]}')
    told = spoilt.replace(after="{}", error="unequal number of header keys (1) and values (2)")
    first, second = recorded(spoilt, told, has_messages=True)
    assert isinstance(first, Unfit)
    assert second == Unfit("unequal number of header keys (1) and values (2)")


def test_a_row_of_a_table_with_just_the_columns_of_a_message_is_a_row():
    change = document(to_change(Message("mail", b"k", b"v"), 5))
    [record] = recorded(change)
    assert (record.topic, record.key) == ("shop.mail", b'{"key":"k"}')
    assert json.loads(record.value)["after"] == {"value": "v", "headers": []}
    assert recorded(change, has_messages=True)[0].topic == "mail"


def test_what_a_transform_has_made_of_a_message_is_a_row():
    [record] = recorded(document(to_change(Message("mail", b"k", b"v"), 5)).replace(after='{"id":1}'), has_messages=True)
    assert (record.topic, json.loads(record.value)["after"]) == ("shop.mail", {"id": 1})


@pytest.mark.parametrize(
    ("source", "is_so"),
    [
        ({"type": "sqlite", "database": "x.db"}, False),
        ({"type": "outbox", "database": "postgresql://127.0.0.1:1/x"}, True),
        ({"type": "outbox", "database": "postgresql://127.0.0.1:1/x", "reader": "mark"}, True),
    ],
)
def test_the_source_says_whether_it_gives_messages(source, is_so):
    pipeline = config.parse({"name": "p", "source": source, "sink": {"type": "discard"}, "state": "state.db"})
    assert pipeline.source.gives_messages is is_so


def test_a_row_has_its_key_the_words_of_the_format_and_its_place():
    [record] = recorded(ROW)
    assert (record.topic, record.key) == ("shop.orders", b'{"id":7}')
    value = json.loads(record.value)
    assert (value["position"], value["previous"], value["op"], value["after"]) == (12, 11, "update", {"id": 7, "total": 2.5})
    assert dict(record.headers) == {"penstock-position": b"12", "penstock-op": b"update", "penstock-epoch": b"3"}


def test_format_row_is_the_row_as_it_is_now_and_a_tombstone_when_it_is_gone():
    gone = Change(13, Op.DELETE, "orders", '{"id":7}', before='{"id":7}')
    schema = Change(14, Op.SCHEMA, "orders", "{}", after='{"table":"orders"}')
    values = [record and record.value for record in recorded(ROW, gone, schema, format="row")]
    assert values == [b'{"id":7,"total":2.50}', None, None]
    assert recorded(schema, format="row") == [None]


@pytest.mark.parametrize(("key", "bare"), [('{"id":7}', b"7"), ('{"sku":"a b"}', b"a b"), ('{"a":1,"b":"x"}', b'[1,"x"]')])
def test_a_bare_key_is_the_value_of_one_column_or_an_array(key, bare):
    assert recorded(ROW.replace(key=key), key="bare")[0].key == bare


def test_what_a_topic_cannot_have_in_its_name_becomes_an_underscore():
    assert recorded(ROW.replace(table="mein Tisch/ä"))[0].topic == "shop.mein_Tisch__"


@pytest.mark.parametrize("cursor", ["{}", "x" * PIECE, "ü" * 9000, '{"a":"' + "1:2," * 5000 + '"}'])
def test_a_watermark_comes_back_whole_from_pieces_that_kafka_takes(cursor):
    mark = Watermark(Cursor(cursor), 7, 6)
    parts = pieces(mark)
    assert all(len(part.encode()) <= 4096 for part in parts)
    assert joined(7, [*parts, "0/9:left from a longer one"]) == mark


SHARED = {"type": "sqlite", "database": "x.db"}


def parsed(source=SHARED, transform=None, **sink):
    values = {"config": {"bootstrap.servers": "127.0.0.1:1"}, **sink}
    return config.parse({"name": "p", "source": source, "transform": transform or {}, "sink": {"type": "kafka", **values}})


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"config": {}}, "no bootstrap.servers"),
        ({"config": {"bootstrap.servers": "x:1", "no.such.thing": 1}}, "no.such.thing"),
        ({"config": {"bootstrap.servers": "x:1", "enable.idempotence": False}}, "decided by Penstock itself"),
        ({"config": {"bootstrap.servers": "x:1", "transactional.id": "mine"}}, "decided by Penstock itself"),
        ({"config": {"bootstrap.servers": "x:1", "delivery.timeout.ms": 6000}}, "decided by Penstock itself"),
        ({"topic": "a b"}, "sink.topic is 'a b': a name has letters"),
        ({"progress_topic": "a b"}, "sink.progress_topic is 'a b': a name has letters"),
        ({"progress_topic": "{pipeline}"}, "sink.progress_topic is '{pipeline}': a name has letters"),
        ({"topic": "{position}"}, r"it may have \{pipeline\} and \{table\}"),
        ({"interval": "2m"}, "from 0ms to 60s"),
        ({"format": "rqlite"}, "must be penstock, debezium, cloudevents or row"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(sink, said):
    with pytest.raises(ConfigInvalid, match=said):
        parsed(**sink)


def test_a_barrier_needs_a_source_that_no_other_pipeline_reads():
    with pytest.raises(ConfigInvalid, match=r"sink.delivery.*no other pipeline reads.*reader: mark; use exactly-once"):
        parsed(delivery="barrier")
    own = {"type": "outbox", "database": "postgresql://app@localhost/shop", "reader": "mark"}
    assert parsed(own, delivery="barrier").sink.max_in_flight_records == 5000
    with pytest.raises(ConfigInvalid, match="max_in_flight_records must be 1 or more"):
        parsed(own, delivery="barrier", max_in_flight_records=0)
    with pytest.raises(ConfigInvalid, match=r"transform.function.*cannot be used with sink.delivery: barrier"):
        parsed(own, {"function": "rules:twice"}, delivery="barrier")


def test_no_setting_of_the_library_is_ever_shown():
    secret = {"bootstrap.servers": "x:1", "sasl.password": "s3cret"}
    assert "s3cret" not in repr(parsed(config=secret))
    with pytest.raises(ConfigInvalid) as raised:
        parsed(config={**secret, "security.protocol": "none such"})
    assert "s3cret" not in str(raised.value)
