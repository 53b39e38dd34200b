"""The format debezium: envelopes without schemas."""

import json

import pytest

from penstock.change import Change, Op, to_batch
from penstock.formats.debezium import DebeziumFormat

AT = 1_767_225_600_123_456
FORMAT = DebeziumFormat("orders")


def sent(*changes, previous=None):
    return json.loads(FORMAT.body(filter(None, FORMAT.texts(to_batch(changes), previous))))


@pytest.mark.parametrize(("op", "letter"), [(Op.INSERT, "c"), (Op.UPDATE, "u"), (Op.DELETE, "d"), (Op.REFRESH, "r")])
def test_an_op_is_a_letter_and_a_missing_image_is_null(op, letter):
    before = '{"id":1}' if op in (Op.UPDATE, Op.DELETE) else None
    after = None if op is Op.DELETE else '{"id":1}'
    [envelope] = sent(Change(12, op, "orders", '{"id":1}', before, after, AT), previous=11)
    assert envelope["op"] == letter
    assert envelope["before"] == (before and {"id": 1})
    assert envelope["after"] == (after and {"id": 1})
    assert envelope["ts_ms"] == envelope["source"]["ts_ms"] == AT // 1000
    assert envelope["source"]["snapshot"] == ("true" if op is Op.REFRESH else "false")


def test_the_source_tells_where_a_change_stands():
    [envelope] = sent(Change(12, Op.INSERT, 'a"b', '{"id":1}', None, "{}", AT, error="odd", transaction=5, ordinal=2))
    source = envelope["source"]
    assert source.pop("version")
    assert source == {
        "connector": "penstock",
        "name": "orders",
        "ts_ms": AT // 1000,
        "snapshot": "false",
        "table": 'a"b',
        "key": {"id": 1},
        "position": 12,
        "previous": None,
        "ordinal": 2,
        "txId": 5,
        "error": "odd",
    }


def test_blobs_are_base64_and_infinities_words_as_debezium_has_them():
    [envelope] = sent(Change(1, Op.INSERT, "t", '{"k":{"$blob":"AA=="}}', None, '{"b":{"$blob":"AP8="},"r":{"$real":"inf"}}', AT))
    assert (envelope["after"], envelope["source"]["key"]) == ({"b": "AP8=", "r": "Infinity"}, {"k": "AA=="})


def test_changes_of_schema_are_left_out_and_the_chain_still_holds():
    insert = Change(1, Op.INSERT, "t", "{}", None, "{}", AT)
    after = sent(insert, Change(2, Op.SCHEMA, "t", "{}", None, "{}", AT), Change(3, Op.DELETE, "t", "{}", "{}", None, AT))
    assert [(one["source"]["position"], one["source"]["previous"]) for one in after] == [(1, None), (3, 2)]


def test_an_envelope_is_the_same_text_however_it_is_batched():
    changes = [Change(n, Op.INSERT, "t", "{}", None, '{"x": 1.0}', AT) for n in (1, 2, 3)]
    assert [*FORMAT.texts(to_batch(changes[:1]), None), *FORMAT.texts(to_batch(changes[1:]), 1)] == FORMAT.texts(
        to_batch(changes), None
    )
