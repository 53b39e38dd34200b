"""A message keeps every byte on its way through a change."""

from __future__ import annotations

import json

import pytest

from messages import to_change
from penstock.change import Change, Op, from_batch, of_values, to_batch, values
from penstock.message import Message, document, documents, native, natives, of_change

MESSAGES = [
    Message("orders", b"42", b'{"id": 42, "text": "a \\"quoted\\" line\\n"}', (("trace", b"abc"), ("trace", b"def"))),
    Message("orders", "küche".encode(), "süß \u2028 \x00".encode(), (("ünits", b"\xff\x00"),)),
    Message("binary", b"\xff\xfe", bytes(range(256)), (("none", None), ("empty", b""))),
    Message("empty", b"", b""),
    Message("tagged", b'{"$blob": "AA=="}', b'{"$blob": "AA=="}'),
    Message("keyless", None, b"value"),
    Message("tombstone", b"42", None, (("why", b"gone"),)),
    Message("nothing", None, None),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.topic)
def test_every_byte_of_a_message_survives_its_change(message: Message) -> None:
    [change] = from_batch(to_batch([to_change(message, 7, at=5)]))
    assert (change.position, change.table, change.at) == (7, message.topic, 5)
    assert of_change(change) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.topic)
def test_every_byte_of_a_message_survives_its_document(message: Message) -> None:
    given = to_change(message, 7, at=5)
    [change] = from_batch(documents(to_batch([given])))
    assert change == document(given)
    assert (type(change.key), change.headers, change.checksum()) == (str, (), given.checksum())
    assert of_change(change) == message
    assert native(change) == given


def test_documents_of_messages_and_of_rows_come_back_in_runs() -> None:
    given = [to_change(message, at) for at, message in enumerate(MESSAGES)]
    row = Change(99, Op.INSERT, "pairs", '{"key":"a"}', after='{"id":1}')
    spoilt = row.replace(after='{"value":"x","headers":[["only a name"]]}')
    made = [document(change) for change in given]
    runs = [list(from_batch(run)) for run in natives(to_batch([*made[:3], row, spoilt, *made[3:]]))]
    assert runs == [given[:3], [row, spoilt], given[3:]]


def test_a_batch_has_rows_or_messages_and_never_both() -> None:
    row = Change(1, Op.INSERT, "pairs", '{"key":"a"}', after='{"id":1}')
    with pytest.raises(TypeError, match="not both"):
        of_values([values(row), values(to_change(MESSAGES[0], 1))])


def test_a_message_is_an_insert_and_one_without_value_a_delete() -> None:
    assert to_change(MESSAGES[0], 1).op == Op.INSERT
    tombstone = to_change(MESSAGES[6], 2)
    assert (tombstone.op, tombstone.after) == (Op.DELETE, None)


def test_text_is_readable_in_the_document() -> None:
    change = document(to_change(Message("orders", b"42", b"hello", (("trace", b"abc"),)), 1))
    assert (change.key, change.after) == ('{"key":"42"}', '{"value":"hello","headers":[["trace","abc"]]}')


@pytest.mark.parametrize(
    "change",
    [
        Change(1, Op.INSERT, "pairs", '{"key":"a"}', after='{"key":"a","value":"x"}'),
        Change(1, Op.INSERT, "orders", '{"id":1}', after='{"id":1,"value":"x","headers":[]}'),
        Change(1, Op.DELETE, "pairs", '{"key":"a"}'),
        Change(1, Op.DELETE, "pairs", '{"key":"a"}', before='{"key":"a","value":"x"}'),
    ],
)
def test_a_change_of_a_row_is_no_message(change: Change) -> None:
    assert of_change(change) is None


def test_a_projection_can_make_a_message_of_a_row() -> None:
    made = Change(1, Op.INSERT, "pairs", '{"key":"a"}', after=json.dumps({"value": "x", "headers": []}))
    assert of_change(made) == Message("pairs", b"a", b"x")


@pytest.mark.parametrize("headers", [None, 0, [["trace"]], [["trace", 1]]])
def test_what_cannot_be_headers_is_not_taken_for_no_headers(headers: object) -> None:
    made = Change(1, Op.INSERT, "pairs", '{"key":"a"}', after=json.dumps({"value": "x", "headers": headers}))
    with pytest.raises((TypeError, ValueError)):
        of_change(made)
