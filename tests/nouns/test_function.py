"""What a function may make of a change, and how what it made is told apart."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages import to_change
from penstock.change import Change, Op, from_batch, to_batch
from penstock.message import Message, document, native
from penstock.transform.function import ROOM, Function, origins

CHANGE = Change(7, Op.UPDATE, "orders", '{"id":1}', '{"id":1,"n":0}', '{"id":1,"n":1}', 5, '{"new_row_id":1}')


def outcome(call, *changes):
    return Function("rules:call", call).apply(to_batch(changes or [CHANGE]))


def made(call, *changes):
    found = outcome(call, *changes)
    assert found.error is None
    return list(from_batch(found.changes))


ways = st.lists(st.sampled_from([None, "same", 0, 1, 2, 5]), max_size=30)


@given(ways, st.booleans())
def test_what_is_made_keeps_order_and_every_place_is_taken_once(chosen, has_ordinals):
    changes = [
        replace(CHANGE, position=1 if has_ordinals else at, ordinal=at if has_ordinals else None)
        for at in range(1, len(chosen) + 1)
    ]
    answers = iter(chosen)

    def call(change):
        way = next(answers)
        return change if way == "same" else way if way is None else [replace(change, after=f'{{"n":{i}}}') for i in range(way)]

    found = outcome(call, *changes)
    got = list(from_batch(found.changes))
    places = [change.place for change in got]
    assert places == sorted(set(places))
    expected = [
        (at, number)
        for at, way in enumerate(chosen, 1)
        for number in ([] if way in (None, 0) else [0] if way in ("same", 1) else range(1, way + 1))
    ]
    scaled = [(1, at * ROOM + number) for at, number in expected]
    assert places == (scaled if has_ordinals else expected)
    assert origins(to_batch(changes), found.changes) == [changes[at - 1] for at, _ in expected]
    assert found.last == (changes[-1] if changes else None)
    assert not found.is_rewritten


def test_a_change_is_replaced_as_any_dataclass_is():
    assert CHANGE.replace(after=None, table="x") == replace(CHANGE, after=None, table="x")
    assert CHANGE.replace() == CHANGE
    with pytest.raises(TypeError, match="a Change has no aftr"):
        CHANGE.replace(aftr=None)


def test_one_change_in_a_list_is_like_that_change_alone():
    assert made(lambda change: [change]) == made(lambda change: change) == [CHANGE]


def test_several_get_ordinals_from_one():
    several = made(lambda change: [change, replace(change, table="audit"), change])
    assert [(one.position, one.ordinal, one.table) for one in several] == [(7, 1, "orders"), (7, 2, "audit"), (7, 3, "orders")]


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_drops_the_change(nothing):
    assert made(lambda change: nothing) == []


def test_what_is_no_row_passes_by():
    told = replace(CHANGE, op=Op.SCHEMA)
    assert made(lambda change: None, told, CHANGE) == [told]


MESSAGE = to_change(Message("orders", b"\xff", b"\x00\xfe", (("trace", b"\xfd"),)), 7)
TOMBSTONE = to_change(Message("orders", b"k", None), 8)


@pytest.mark.parametrize(
    ("altered", "expected"),
    [
        ({}, MESSAGE),
        ({"after": b"new"}, MESSAGE.replace(after=b"new")),
        ({"headers": {"a": "ä", "b": None}}, MESSAGE.replace(headers=(("a", "ä".encode()), ("b", None)))),
        ({"headers": [("a", b"1"), ("a", b"2")]}, MESSAGE.replace(headers=(("a", b"1"), ("a", b"2")))),
        ({"after": None}, MESSAGE.replace(op=Op.DELETE, after=None)),
        ({"after": '{"id":1}'}, document(MESSAGE).replace(after='{"id":1}', headers=MESSAGE.headers)),
    ],
)
def test_a_function_sees_the_bytes_and_headers_of_a_message(altered, expected):
    seen = []
    found = outcome(lambda change: seen.append(change) or replace(change, **altered), MESSAGE)
    assert (seen, list(from_batch(found.changes))) == ([MESSAGE], [expected])


def test_messages_beside_rows_that_a_function_made_of_others_are_documents():
    found = outcome(lambda change: change.replace(after='{"id":1}') if change.after else change, TOMBSTONE, MESSAGE)
    assert [change.position for change in from_batch(found.changes) if change.is_message] == []
    assert native(next(from_batch(found.changes))) == TOMBSTONE


@pytest.mark.parametrize(
    ("altered", "is_rewritten"), [({"op": Op.DELETE}, True), ({"table": "x"}, True), ({"at": 6}, True), ({"after": None}, False)]
)
def test_what_the_source_knows_a_change_by_is_noticed_when_altered(altered, is_rewritten):
    found = outcome(lambda change: replace(change, **altered))
    assert found.is_rewritten is is_rewritten
    assert list(from_batch(found.changes)) == [replace(CHANGE, **altered)]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "before": st.sampled_from([None, "{}", '{"a": [1, null, "\\u00e9"]}']),
            "after": st.sampled_from([None, "{}", '{"a":18446744073709551617}']),
            "op": st.sampled_from(["insert", Op.DELETE, "refresh"]),
            "table": st.text(),
            "at": st.integers(0, 1 << 50),
            "facts": st.none() | st.just('{"new_row_id":1}'),
            "transaction": st.none() | st.integers(0, 1 << 40),
            "error": st.none() | st.text(),
        },
    )
)
def test_everything_else_may_change_and_arrives_as_it_was_made(altered):
    expected = replace(CHANGE, **altered)
    found = outcome(lambda change: expected)
    if any(isinstance(value, str) and not _is_encodable(value) for value in altered.values()):
        assert found.error
    else:
        assert list(from_batch(found.changes)) == [expected]


def _is_encodable(text):
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


@pytest.mark.parametrize(
    ("altered", "said"),
    [
        ({"position": 8}, "position 8: it must not alter it"),
        ({"key": '{"id":2}'}, "it must not alter it"),
        ({"ordinal": 1}, "ordinal 1: it must not alter it"),
        ({"op": "resolved"}, "op 'resolved': it must be insert, update, delete or refresh"),
        ({"op": None}, "op None"),
        ({"op": ["insert"]}, "op ['insert']: it must be insert, update, delete or refresh"),
        ({"table": None}, "table None: it must be text"),
        ({"table": "\ud800"}, "it must be text"),
        ({"after": {"id": 1}}, "after {'id': 1}: it must be None or the text of a JSON object"),
        ({"after": "{"}, "the text of a JSON object"),
        ({"after": "[1]"}, "the text of a JSON object"),
        ({"after": '{"a":NaN}'}, "the text of a JSON object"),
        ({"before": b"{}"}, "the text of a JSON object"),
        ({"at": 1.5}, "at 1.5: it must be a whole number of microseconds"),
        ({"transaction": 1 << 63}, "it must be None or a whole number of 64 bits"),
        ({"transaction": True}, "it must be None or a whole number of 64 bits"),
        ({"error": 5}, "error 5: it must be None or text"),
        ({"schema": "2"}, "schema '2': it must be None or a whole number of 64 bits"),
        ({"headers": "trace"}, "headers 'trace': it must be pairs, or a mapping, of text to bytes, text or None"),
        ({"headers": {"trace": 5}}, "of text to bytes, text or None"),
        ({"headers": iter([("trace", b"x")])}, "it must be pairs, or a mapping, of text to bytes, text or None"),
        ({"headers": ((b"trace", b"x"),)}, "of text to bytes, text or None"),
    ],
)
@pytest.mark.parametrize("in_list", [False, True])
def test_what_may_not_be_changed_is_named_with_the_row(altered, said, in_list):
    found = outcome(lambda change: [replace(change, **altered)] if in_list else replace(change, **altered))
    assert said in found.error.message
    assert found.error.message.startswith("transform.function rules:call returned a change with ")
    assert found.error.message.endswith('on change 7 of orders, key {"id":1}')


@pytest.mark.parametrize(
    ("result", "said"),
    [("x", "str 'x'"), ({}, "dict {}"), ((CHANGE,), "a tuple"), ([CHANGE, None], "NoneType None"), (True, "bool")],
)
def test_what_is_no_change_is_refused(result, said):
    assert f"returned {said}" in outcome(lambda change: result).error.message


def test_what_came_before_the_failing_change_is_still_made():
    def call(change):
        return replace(change, after=f'{{"n":{6 // (3 - change.position)}}}')

    found = outcome(call, *(replace(CHANGE, position=at) for at in range(1, 6)))
    assert [change.position for change in from_batch(found.changes)] == [1, 2]
    assert found.last.position == 2
    assert "raised ZeroDivisionError: " in found.error.message
    assert f" at {__file__}:{call.__code__.co_firstlineno + 1} on change 3 of orders" in found.error.message


def test_a_function_that_wants_to_end_the_program_fails_like_any_other():
    assert "raised SystemExit: 3" in outcome(lambda change: exit(3)).error.message


def test_a_change_with_an_ordinal_is_named_with_it():
    assert "on change 7.4 of" in outcome(lambda change: 1, replace(CHANGE, ordinal=4)).error.message


def test_failures_that_are_spared_are_told_and_the_rest_goes_on():
    changes = [replace(CHANGE, position=at) for at in range(1, 7)]

    def call(change):
        return change if change.position % 2 else 1 / 0

    found = Function("rules:call", call).apply(to_batch(changes), spared=1)
    assert [change.position for change in from_batch(found.changes)] == [1, 3, 5]
    assert [change.position for change, _ in found.failures] == [2, 4, 6]
    assert (found.error, found.last, found.in_row) == (None, changes[-1], 1)


def test_too_many_failures_in_a_row_over_several_runs_are_the_functions_own_fault():
    def call(change):
        return 1 / 0

    function = Function("rules:call", call)
    first = function.apply(to_batch([replace(CHANGE, position=at) for at in (1, 2)]), spared=3)
    assert (len(first.failures), first.error, first.in_row) == (2, None, 2)
    second = function.apply(to_batch([replace(CHANGE, position=at) for at in (3, 4, 5)]), spared=3, in_row=first.in_row)
    assert [change.position for change, _ in second.failures] == [3]
    assert "on change 4 of" in second.error.message
    assert second.last.position == 3
