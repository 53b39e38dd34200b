"""Changes and marks as rows and in bundles, without Spark."""

from io import BufferedWriter, BytesIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.conversion import ArrowBatchTransformer

from penstock.change import CHANGES, NO_CHANGES, Change, Lane, Op, from_batch, to_batch
from penstock.cursor import Cursor
from penstock.message import document
from penstock.spark import bundles
from penstock.spark.bundles import encoding_of
from penstock.spark.rows import FLUSH_BYTES, ROWS, Mark
from penstock.spark.session import _SETTINGS

both_encodings = pytest.mark.parametrize(
    "encoding", [encoding_of(has_sql=True), encoding_of(has_sql=False)], ids=["rows", "bundles"]
)

texts = st.none() | st.text(max_size=20)
changes = st.builds(
    Change,
    position=st.integers(1, 1 << 60),
    op=st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE, Op.REFRESH]),
    table=st.text(max_size=10),
    key=st.text(max_size=10),
    before=texts,
    after=texts,
    at=st.integers(0, 1 << 50),
    facts=texts,
    error=texts,
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    schema=st.none() | st.integers(0, 9),
)
raw = st.none() | st.binary(max_size=20)
messages = st.builds(
    lambda change, key, after: change.replace(key=key, before=None, after=after), changes, st.binary(max_size=9), raw
)


@given(st.lists(changes) | st.lists(messages))
def test_changes_survive_arrow(given_changes):
    assert list(from_batch(to_batch(given_changes))) == given_changes


@both_encodings
@given(st.lists(changes, max_size=5), st.sampled_from([0, 100, 16384]))
def test_pieces_give_back_changes_and_mark_in_order(encoding, given_changes, pad):
    mark = Mark(Lane("log"), 7, Cursor('{"position":7}'))
    found = list(encoding.pieces(encoding.pack(to_batch(given_changes), mark, pad)))
    assert found[-1] == mark
    assert [change for run in found[:-1] for change in from_batch(run)] == given_changes


@both_encodings
def test_a_padded_mark_is_as_fat_as_it_was_asked_to_be(encoding):
    batch = encoding.pack(NO_CHANGES, Mark(Lane("log"), 1, Cursor("{}")), 16384)
    assert batch.nbytes >= 16384
    assert batch.num_rows == 2


@both_encodings
@given(st.lists(changes, max_size=5), st.integers(2, 3 * FLUSH_BYTES))
def test_nothing_of_a_padded_batch_stays_in_the_buffer_of_a_worker(encoding, given_changes, length):
    mark = Mark(Lane("log"), 1, Cursor("{" + " " * (length - 2) + "}"))
    batch = ArrowBatchTransformer.wrap_struct(encoding.pack(to_batch(given_changes), mark, FLUSH_BYTES))
    arrived = BytesIO()
    worker = BufferedWriter(arrived, int(_SETTINGS["spark.buffer.size"]))
    pa.RecordBatchStreamWriter(worker, batch.schema).write_batch(batch)
    before = len(arrived.getvalue())
    worker.flush()
    assert len(arrived.getvalue()) == before


@both_encodings
def test_changes_without_a_mark_have_none(encoding):
    packed = encoding.pack(to_batch([Change(1, Op.INSERT, "t", "{}")]), None, 0)
    assert [type(piece).__name__ for piece in encoding.pieces(packed)] == ["RecordBatch"]
    assert list(encoding.pieces(encoding.pack(NO_CHANGES, None, 0))) == []


def test_bundles_stay_small_and_only_the_last_one_has_the_mark():
    each = bundles.BUNDLE_BYTES // 3
    large = [Change(position, Op.INSERT, "t", "{}", after="x" * each) for position in range(1, 10)]
    mark = Mark(Lane("log"), 9, Cursor("{}"))
    batch = bundles.bundles(to_batch(large), mark, FLUSH_BYTES)
    assert max(len(packed) for packed in batch.column("changes").to_pylist() if packed) <= bundles.BUNDLE_BYTES
    *runs, last = bundles.unbundled(batch)
    assert len(runs) > 4
    assert [change for run in runs for change in from_batch(run)] == large
    assert last == mark


def test_a_change_that_is_larger_than_a_bundle_travels_alone():
    huge = Change(1, Op.INSERT, "t", "{}", after="x" * 2 * bundles.BUNDLE_BYTES)
    [run] = bundles.unbundled(bundles.bundles(to_batch([huge])))
    assert list(from_batch(run)) == [huge]


@both_encodings
def test_the_schema_for_spark_names_the_same_columns_in_the_same_order(encoding):
    assert [column.split()[0] for column in encoding.ddl.split(", ")] == encoding.pack(NO_CHANGES, None, 0).schema.names


def test_rows_have_the_columns_of_changes_and_one_for_marks():
    assert [*CHANGES.names, "mark"] == ROWS.names


@given(st.lists(messages, min_size=1, max_size=5))
def test_messages_stay_bytes_in_bundles_and_are_documents_where_expressions_see_them(given_messages):
    batch, packed = to_batch(given_messages), bundles.bundles(to_batch(given_messages))
    [run] = bundles.unbundled(packed)
    assert list(from_batch(run)) == given_messages
    [row] = encoding_of(has_sql=True).pieces(encoding_of(has_sql=True).pack(batch, None, 0))
    assert list(from_batch(row)) == list(map(document, given_messages))
