"""Changes and marks as rows, without Spark."""

from io import BufferedWriter, BytesIO

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.conversion import ArrowBatchTransformer

from penstock.change import CHANGES, NO_CHANGES, Change, Lane, Op, from_batch, to_batch
from penstock.cursor import Cursor
from penstock.spark.rows import DDL, FLUSH_BYTES, NOTHING, ROWS, Mark, pieces, rows
from penstock.spark.session import _SETTINGS

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
    old_row_id=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    new_row_id=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    error=texts,
)


@given(st.lists(changes))
def test_changes_survive_arrow(given_changes):
    assert list(from_batch(to_batch(given_changes))) == given_changes


@given(st.lists(changes, max_size=5), st.sampled_from([0, 100, 16384]))
def test_pieces_give_back_changes_and_mark_in_order(given_changes, pad):
    mark = Mark(Lane("log"), 7, Cursor('{"position":7}'))
    found = list(pieces(rows(to_batch(given_changes), mark, pad)))
    assert found[-1] == mark
    assert [change for run in found[:-1] for change in from_batch(run)] == given_changes


def test_a_padded_mark_is_as_fat_as_it_was_asked_to_be():
    batch = rows(NO_CHANGES, Mark(Lane("log"), 1, Cursor("{}")), 16384)
    assert batch.nbytes >= 16384
    assert batch.num_rows == 2


@given(st.lists(changes, max_size=5), st.integers(2, 3 * FLUSH_BYTES))
def test_nothing_of_a_padded_batch_stays_in_the_buffer_of_a_worker(given_changes, length):
    mark = Mark(Lane("log"), 1, Cursor("{" + " " * (length - 2) + "}"))
    batch = ArrowBatchTransformer.wrap_struct(rows(to_batch(given_changes), mark, FLUSH_BYTES))
    arrived = BytesIO()
    worker = BufferedWriter(arrived, int(_SETTINGS["spark.buffer.size"]))
    pa.RecordBatchStreamWriter(worker, batch.schema).write_batch(batch)
    before = len(arrived.getvalue())
    worker.flush()
    assert len(arrived.getvalue()) == before


def test_rows_without_a_mark_have_none():
    assert [type(piece).__name__ for piece in pieces(rows(to_batch([Change(1, Op.INSERT, "t", "{}")])))] == ["RecordBatch"]
    assert list(pieces(NOTHING)) == []


def test_the_schema_for_spark_names_the_same_columns_in_the_same_order():
    assert [column.split()[0] for column in DDL.split(", ")] == ROWS.names == [*CHANGES.names, "mark"]
