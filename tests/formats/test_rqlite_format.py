"""The format rqlite: its envelope, with values that its receivers understand."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import facts
from penstock.change import Change, Op, to_batch
from penstock.formats.rqlite import RqliteFormat, untagged

AT = 1_755_555_555_123_456
TAGGY = ['{"$blob": "AP8="}', '{"$blob":"', '"$', "{", '{"$real":"inf"}', '":{"$blob":"AP8="}', "\\", '\\"', ":", "$blob", '"']

plain = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.sampled_from(TAGGY)).map("".join),
)
blobs = st.sampled_from(["", "AP8=", "aGVsbG8+/w=="])
names = st.text() | st.sampled_from(["$blob", "$real", "$text", *TAGGY])


def one(*fields, service=None, **more):
    form = RqliteFormat("orders", service=service)
    return form.body(form.texts(to_batch([Change(*fields, **more)]), None)).decode()


def test_an_update_byte_for_byte():
    body = one(12, Op.UPDATE, "foo", '{"id":2}', '{"id":2,"name":"x"}', '{"id":2,"name":"y"}', AT, facts(2, 2), service="shop")
    assert body == (
        '{"service_id":"shop","node_id":"orders","payload":[{"index":12,"commit_timestamp":1755555555123,"events":[{"op":"UPDATE",'
        '"table":"foo","new_row_id":2,"old_row_id":2,"before":{"id":2,"name":"x"},"after":{"id":2,"name":"y"}}]}]}'
    )


def test_an_insert_has_no_before_and_no_old_row():
    assert one(1, Op.INSERT, "foo", '{"id":1}', None, '{"id":1}', AT, facts(None, 1)) == (
        '{"node_id":"orders","payload":[{"index":1,"commit_timestamp":1755555555123,"events":[{"op":"INSERT","table":"foo",'
        '"new_row_id":1,"after":{"id":1}}]}]}'
    )


def test_a_delete_has_no_after_and_no_new_row():
    assert one(1, Op.DELETE, "foo", '{"id":1}', '{"id":1}', None, AT, facts(1, None)) == (
        '{"node_id":"orders","payload":[{"index":1,"commit_timestamp":1755555555123,"events":[{"op":"DELETE","table":"foo",'
        '"old_row_id":1,"before":{"id":1}}]}]}'
    )


def test_row_id_0_is_sent():
    (event,) = json.loads(one(1, Op.UPDATE, "foo", "{}", "{}", "{}", AT, facts(0, 0)))["payload"][0]["events"]
    assert (event["old_row_id"], event["new_row_id"]) == (0, 0)


def test_a_refresh_is_an_insert_of_the_row_as_it_is():
    (event,) = json.loads(one(1, Op.REFRESH, "foo", "{}", None, '{"id":1}', AT))["payload"][0]["events"]
    assert event == {"op": "INSERT", "table": "foo", "after": {"id": 1}}


def test_an_error_stands_in_place_of_the_images():
    body = one(1, Op.UPDATE, "foo", "{}", "{}", '{"a":{"$text":"/w=="}}', AT, facts(1, 1), "not UTF-8")
    (event,) = json.loads(body)["payload"][0]["events"]
    assert event == {"op": "UPDATE", "table": "foo", "old_row_id": 1, "new_row_id": 1, "error": "not UTF-8"}


def test_each_change_is_a_group_of_its_own():
    form = RqliteFormat("orders")
    texts = form.texts(to_batch(Change(p, Op.INSERT, "t", "{}", None, "{}", AT) for p in (10, 20, 30)), 5)
    assert [(group["index"], len(group["events"])) for group in json.loads(form.body(texts))["payload"]] == [
        (10, 1),
        (20, 1),
        (30, 1),
    ]


def payload(*changes):
    form = RqliteFormat("orders")
    return json.loads(form.body(text for text in form.texts(to_batch(changes), None) if text is not None))["payload"]


def test_neighbours_of_one_transaction_are_one_group_with_its_number_as_index():
    numbers = {10: None, 11: 11, 12: 11, 13: None, 14: 14, 15: 15, 16: 15, 17: 15}
    changes = [
        Change(p, Op.INSERT, "t", "{}", None, f'{{"p":{p},"t":"a],{{["}}', AT + 1000 * p, transaction=n) for p, n in numbers.items()
    ]
    found = [(group["index"], [event["after"]["p"] for event in group["events"]]) for group in payload(*changes)]
    assert found == [(10, [10]), (11, [11, 12]), (13, [13]), (14, [14]), (15, [15, 16, 17])]
    assert payload(*changes)[1]["commit_timestamp"] == (AT + 11_000) // 1000  # of its first event


def test_a_transaction_that_comes_in_two_requests_has_the_same_index_in_both():
    form = RqliteFormat("orders")
    texts = form.texts(to_batch(Change(p, Op.INSERT, "t", "{}", None, "{}", AT, transaction=5) for p in (5, 6, 7)), None)
    first, second = (json.loads(form.body(some))["payload"] for some in (texts[:2], texts[2:]))
    assert [(group["index"], len(group["events"])) for group in first + second] == [(5, 2), (5, 1)]


def test_a_change_of_schema_is_left_out():
    form = RqliteFormat("orders")
    assert form.texts(to_batch([Change(1, Op.SCHEMA, "t", "", None, "{}", AT)]), None) == [None]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=8), st.integers(1, 5))
def test_however_it_is_cut_every_event_comes_once_in_order_and_indexes_never_go_back(transactions, size):
    changes, position = [], 0
    for is_numbered, rows in transactions:
        number = position + 1 if is_numbered else None
        for _ in range(rows):
            position += 1
            changes.append(Change(position, Op.DELETE, "t", "{}", f"[{position}]", None, AT, transaction=number))
    groups = [group for first in range(0, position, size) for group in payload(*changes[first : first + size])]
    assert [event["before"] for group in groups for event in group["events"]] == [[p + 1] for p in range(position)]
    indexes = [group["index"] for group in groups]
    assert indexes == sorted(indexes)


@pytest.mark.parametrize(
    ("image", "sent"),
    [
        ('{"a":{"$blob":"AP8="}}', '{"a":"AP8="}'),
        ('{"a":{"$blob":""},"b":{"$blob":"/w=="}}', '{"a":"","b":"/w=="}'),
        ('{"a":{"$real":"inf"},"b":{"$real":"-inf"}}', '{"a":"Infinity","b":"-Infinity"}'),
        ('{"a": {"$blob": "AP8="} , "b":1.0}', '{"a": "AP8=" , "b":1.0}'),
        ('{"$blob":"a text in a column of this name"}', '{"$blob":"a text in a column of this name"}'),
        ('{"$blob":{"$blob":"AP8="}}', '{"$blob":"AP8="}'),
        (r'{"a":"{\"$blob\":\"AP8=\"}"}', r'{"a":"{\"$blob\":\"AP8=\"}"}'),
        (r'{"a":":{","$blob":"x"}', r'{"a":":{","$blob":"x"}'),
        (
            '{"a":9223372036854775807,"b":0.10000000000000001,"c":{"$blob":""}}',
            '{"a":9223372036854775807,"b":0.10000000000000001,"c":""}',
        ),
    ],
)
def test_tags_become_plain_values_and_every_other_byte_stays(image, sent):
    assert untagged(image) == sent


def tagged(value):
    return {"$blob": value[1]} if isinstance(value, tuple) else {"$real": repr(value)} if value in (math.inf, -math.inf) else value


def sent(value):
    return value[1] if isinstance(value, tuple) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, value)


@given(
    st.dictionaries(names, plain | st.tuples(st.just("blob"), blobs) | st.sampled_from([math.inf, -math.inf])),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_whatever_texts_and_column_names_hold_exactly_the_tags_are_replaced(row, separators, ascii_only):
    written = json.dumps({name: tagged(value) for name, value in row.items()}, separators=separators, ensure_ascii=ascii_only)
    wanted = json.dumps({name: sent(value) for name, value in row.items()}, separators=separators, ensure_ascii=ascii_only)
    assert untagged(written) == wanted
