"""How large the heap is, and which row it carries."""

import re
from pathlib import Path

import pytest

from penstock.change import Change, Op, to_batch
from penstock.spark import heap
from penstock.spark.outsize import HEAP_PER_ROW, PIECE_BYTES, Outsize, cut, refused, size_of
from penstock.text.size import GIB, MIB, parse, parse_heap


@pytest.mark.parametrize(("text", "size"), [("512m", 512 * MIB), ("2g", 2 * GIB), ("3G", 3 * GIB), ("1GiB", GIB)])
def test_a_heap_is_spelled_as_java_and_spark_do_or_as_any_size(text: str, size: int) -> None:
    assert parse_heap(text) == size
    assert parse_heap(str(parse_heap(text))) == size


@pytest.mark.parametrize(("memory", "size"), [(GIB, GIB), (8 * GIB, 2 * GIB), (64 * GIB, 4 * GIB)])
def test_the_heap_follows_the_machine(monkeypatch: pytest.MonkeyPatch, memory: int, size: int) -> None:
    monkeypatch.setattr(heap, "machine_memory", lambda: memory)
    assert heap.default_heap() == size


def test_the_limit_of_a_container_counts_as_the_memory_of_the_machine(tmp_path: Path) -> None:
    limit, none = tmp_path / "limit", tmp_path / "none"
    limit.write_text("1000000\n")
    none.write_text("max\n")
    assert heap.machine_memory((str(limit), str(none), str(tmp_path / "absent"))) == 1_000_000
    assert heap.machine_memory((str(none),)) > 1_000_000


def test_on_a_cluster_the_heap_is_that_of_the_executors_too() -> None:
    assert heap.heap_settings(GIB, is_local=True) == {"spark.driver.memory": "1024m"}
    assert heap.heap_settings(GIB, is_local=False) == {"spark.driver.memory": "1024m", "spark.executor.memory": "1024m"}


def test_changes_are_cut_so_that_no_batch_has_more_than_a_piece_or_one_row() -> None:
    sizes = [10, PIECE_BYTES, 10, 10, 3 * PIECE_BYTES, *[PIECE_BYTES // 3] * 7, 2 * PIECE_BYTES]
    changes = [Change(at, Op.INSERT, "t", "{}", after="x" * size) for at, size in enumerate(sizes, 1)]
    limit = 2 * PIECE_BYTES
    found = list(cut(to_batch(changes), limit))
    assert [(one.change.position, size_of(one.change)) for one in found if isinstance(one, Outsize)] == [
        (5, 3 * PIECE_BYTES + 2),
        (13, 2 * PIECE_BYTES + 2),
    ]
    batches = [one for one in found if not isinstance(one, Outsize)]
    assert all(one.num_rows == 1 or one.nbytes <= PIECE_BYTES for one in batches)
    order = [one.row if isinstance(one, Outsize) else one for one in found]
    assert [at for one in order for at in one.column(0).to_pylist()] == list(range(1, 14))


def test_nothing_is_one_piece_too() -> None:
    [piece] = cut(to_batch([]), 1)
    assert isinstance(piece, type(to_batch([])))
    assert piece.num_rows == 0


@pytest.mark.parametrize(("size", "row", "memory"), [(600_000, "1MiB", None), (33 * MIB, "33MiB", "528m")])
def test_the_remedy_for_a_row_that_is_too_large_names_values_that_a_pipeline_file_takes(size, row, memory) -> None:
    change = Change(1, Op.INSERT, "t", "{}", after="x" * (size - 2))
    remedy = refused(change, 1000).remedy
    assert (found := re.match(r"set source.max_row to (\w+)(?: and spark.memory to (\w+) or more)?, ", remedy))
    assert found.groups() == (row, memory)
    assert parse(row) >= size
    assert memory is None or parse_heap(memory) // HEAP_PER_ROW >= size
