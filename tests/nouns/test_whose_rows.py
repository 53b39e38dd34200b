"""Rows and changes are the same, whether they are looked at one by one or a batch at a time."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.change import Change, Op, from_batch, from_row, to_batch
from penstock.rows import plain_keys, rows_at, rows_of, rows_of_change

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | WORDS
SPELLINGS = st.sampled_from([{"ensure_ascii": True}, {"ensure_ascii": False}, {"separators": (",", ":"), "ensure_ascii": False}])
KEYS = st.builds(lambda key, how: json.dumps(key, **how), st.dictionaries(WORDS, VALUES, min_size=1, max_size=2), SPELLINGS)
OPS = st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE, Op.REFRESH])
IMAGES = st.sampled_from([None, "{}", '{"a":1,"n":1}', '{"a":2,"n":1}', '{"a":1}'])
OF_KEYS = st.builds(Change, st.integers(1, 9), OPS, WORDS, KEYS)
OF_IMAGES = st.builds(Change, st.integers(1, 9), OPS, st.just("t"), st.sampled_from(['{"a":1}', '{"a":2}', '{"a":12}']), IMAGES)


@given(st.lists(OF_KEYS, min_size=1, max_size=3) | st.lists(OF_IMAGES, min_size=1, max_size=3))
@example([Change(1, Op.UPDATE, "t", '{"a":1}', '{"a":1,"n":1}'), Change(2, Op.UPDATE, "t", '{"a":1}', '{"a":12,"n":1}')])
@example([Change(1, Op.UPDATE, "t", '{"a":1}', '{"a":1,"n":1}'), Change(2, Op.UPDATE, "t", '{"a":1}')])
@example([Change(1, Op.UPDATE, "t", '{"a":1}', '{"a":1,"n":1}'), Change(2, Op.SCHEMA, "t", '{"a":1}')])
@example([Change(1, Op.INSERT, "t", '{"a":-0}'), Change(2, Op.INSERT, "t", '{"a":0}')])
@example([Change(1, Op.INSERT, "t", '{"a":1.0}'), Change(2, Op.INSERT, "t", '{"a":1}')])
@example([Change(1, Op.INSERT, "t", '{"a":"\x7f\x80"}'), Change(2, Op.INSERT, "t", '{"a":"\\n"}')])
def test_a_batch_of_changes_is_about_the_same_rows_as_each_of_them(changes):
    rows, keys = [rows_of_change(change) for change in changes], plain_keys(to_batch(changes))
    assert rows_of(to_batch(changes)) == rows
    assert keys is None or rows_at(to_batch(changes), range(len(changes)), keys) == rows


def test_a_key_that_is_missing_is_not_taken_for_all_rows_of_its_table():
    batch = to_batch([Change(1, Op.INSERT, "t", '{"a":1}'), Change(2, Op.INSERT, "t", None)])
    with pytest.raises(ValueError, match="Input must be"):
        rows_of(batch)


def test_a_change_that_is_taken_out_of_a_batch_alone_is_the_same():
    changes = [
        Change(1, Op.INSERT, "t", '{"a":1}', None, "{}", 1_700_000_000_123_456, '{"new_row_id":7}'),
        Change(2, Op.UPDATE, "t", '{"a":1}', "{}", "{}", 5, None, "error", 3, 4),
    ]
    batch = to_batch(changes)
    assert [from_row(batch.columns, 0), from_row(batch.columns, 1)] == list(from_batch(batch)) == changes
