"""The format cloudevents, read with the library of that project."""

import json

from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from penstock.change import Change, Op, to_batch
from penstock.formats.cloudevents import CloudEventsFormat
from penstock.formats.penstock import PenstockFormat

AT = 1_767_225_600_000_000
OPS = [op for op in Op if op is not Op.RESOLVED]


def sent(*changes, pipeline="orders", previous=None):
    form = CloudEventsFormat(pipeline, "cafe")
    return json.loads(form.body(form.texts(to_batch(changes), previous)))


def read(event):
    """The event as the library reads it, which is strict about attributes."""
    message = HTTPMessage({"content-type": "application/cloudevents+json"}, json.dumps(event).encode())
    return from_structured_event(message)


@given(
    st.lists(st.integers(1, 2**62), min_size=1, max_size=4),
    st.sampled_from(OPS),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.none() | st.integers(0, 9),
)
def test_any_change_is_an_event_of_the_standard_with_the_change_as_data(positions, op, table, pipeline, ordinal):
    changes = [Change(one, op, table, '{"id":"ä"}', "{}", '{"a":1.0}', AT, ordinal=ordinal) for one in positions]
    ours = PenstockFormat(pipeline)
    expected = json.loads(ours.body(ours.texts(to_batch(changes), 7)))["changes"]
    for event, change, data in zip(sent(*changes, pipeline=pipeline, previous=7), changes, expected, strict=True):
        seen = read(event)
        assert isinstance(seen, CloudEvent)
        assert seen.get_type() == f"penstock.{op}"
        assert seen.get_id() == f"cafe-{change.position}" + ("" if ordinal is None else f".{ordinal}")
        assert (seen.get_subject(), seen.get_data()) == (table, data)
        assert int(seen.get_time().timestamp()) == AT // 1_000_000
        assert seen.get_extension("partitionkey") == f'{table}/{{"id":"ä"}}'


def test_a_repeat_has_the_same_source_and_id_however_it_is_batched():
    one, two = (Change(n, Op.INSERT, "orders", "{}", None, "{}", AT) for n in (1, 2))
    assert [*sent(one), *sent(two, previous=1)] == sent(one, two)


def test_the_content_type_says_batch(receiver_of_format):
    assert receiver_of_format("cloudevents").headers["content-type"] == "application/cloudevents-batch+json"
    assert receiver_of_format("debezium").headers["content-type"] == "application/json"
    assert receiver_of_format("cloudevents").positions() == receiver_of_format("debezium").positions() == [1]
