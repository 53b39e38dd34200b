"""Noting and pruning: nothing that is needed goes, and writers are left in peace."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay import connect, logged, source_of

from penstock.cursor import Cursor
from penstock.errors import SourceRewound, SourceUnavailable
from penstock.sources.sqlite import database, settle
from penstock.sources.sqlite.settle import BATCH, BOUND, STILL, Ledger, is_due
from penstock.sources.sqlite.source import LANE


def at(path: Path, position: int) -> Cursor:
    return source_of(path).begin(LANE, str(position))


def kept(writer: sqlite3.Connection) -> tuple[int, int]:
    found: tuple[int, int] = writer.execute("select min(seq), max(seq) from _penstock_log").fetchone()
    return found


def quieten(path: Path) -> None:
    """As if nobody had written for a while."""
    then = time.time() - 2 * STILL
    for name in (path, Path(f"{path}-wal")):
        os.utime(name, (then, then))


def fill(writer: sqlite3.Connection, rows: int) -> None:
    writer.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?) insert into orders(total) select i from n",
        (rows,),
    )


def test_the_row_at_the_lowest_watermark_stays(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    fill(writer, 20)
    source.retention.settle("slow", LANE, at(path, 5))
    source.retention.settle("fast", LANE, at(path, 18))
    assert kept(writer) == (5, 20)
    quieten(path)
    source.retention.settle("slow", LANE, at(path, 20))
    assert kept(writer) == (18, 20)
    quieten(path)
    source.retention.settle("fast", LANE, at(path, 20))
    assert kept(writer) == (20, 20)
    writer.execute("insert into orders(total) values(1)")
    assert [change.position for change in logged(path)] == [20, 21]


def test_a_pipeline_is_known_once_it_settled(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    fill(writer, 3)
    assert source.retention.registered("orders", LANE) is None
    source.retention.settle("orders", LANE, source.begin(LANE, "beginning"))
    assert source.retention.registered("orders", LANE) == 0
    quieten(path)
    source.retention.settle("orders", LANE, at(path, 2))
    assert source.retention.registered("orders", LANE) == 2


def test_a_watermark_that_a_person_set_back_holds_the_log_again(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    fill(writer, 10)
    source.retention.settle("other", LANE, at(path, 3))
    source.retention.settle("orders", LANE, at(path, 8))
    quieten(path)
    source.retention.settle("orders", LANE, at(path, 4))
    quieten(path)
    source.retention.settle("other", LANE, at(path, 10))
    assert kept(writer) == (4, 10)


def test_nobody_can_delete_what_is_needed(writer: sqlite3.Connection, path: Path) -> None:
    fill(writer, 10)
    with pytest.raises(sqlite3.IntegrityError, match="still needed"):
        writer.execute("delete from _penstock_log")
    source_of(path).retention.settle("orders", LANE, at(path, 4))
    with pytest.raises(sqlite3.IntegrityError, match="still needed"):
        writer.execute("delete from _penstock_log where seq = 4")


def test_a_rewound_log_is_not_settled(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    fill(writer, 2)
    ahead = source.head(LANE).replace('"position":2', '"position":7')
    with pytest.raises(SourceRewound):
        source.retention.settle("orders", LANE, Cursor(ahead))
    assert source.retention.registered("orders", LANE) is None


def test_a_busy_database_is_settled_another_time(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_REGISTER_PATIENCE", 86_400.0)
    source = source_of(path)
    fill(writer, 3)
    reached = source.head(LANE)
    writer.execute("begin immediate")
    assert source.retention.settle("orders", LANE, reached).pruned == 0
    writer.execute("commit")
    assert source.retention.settle("orders", LANE, reached).pruned == 2


def test_a_writer_without_patience_is_not_disturbed(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After registration nothing is committed while somebody writes."""
    monkeypatch.setattr(settle, "STILL", math.inf)  # on a starved machine a second between two writes is nothing
    monkeypatch.setattr(settle, "BEAT", math.inf)
    source = source_of(path)
    fill(writer, 2_000)
    source.retention.settle("orders", LANE, source.begin(LANE, "beginning"))
    reached, stop = at(path, 2_000), threading.Event()

    def settling() -> None:
        while not stop.is_set():
            source.retention.settle("orders", LANE, reached)

    thread = threading.Thread(target=settling)
    thread.start()
    with closing(connect(path)) as impatient:
        impatient.execute("pragma busy_timeout = 0")
        for number in range(2_000):
            impatient.execute("insert into orders(total) values(?)", (number,))
    stop.set()
    thread.join()
    assert kept(writer) == (1, 4_000)


def test_a_log_over_its_bound_is_pruned_while_somebody_writes(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "BOUND", 1_000)
    source = source_of(path)
    fill(writer, 3_000)
    source.retention.settle("orders", LANE, source.begin(LANE, "beginning"))
    assert source.retention.settle("orders", LANE, at(path, 3_000)).pruned >= BATCH
    assert kept(writer)[0] > BATCH


def test_a_still_log_is_pruned_at_once(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "BUDGET", math.inf)
    source = source_of(path)
    fill(writer, 2_000)
    source.retention.settle("orders", LANE, source.begin(LANE, "beginning"))
    quieten(path)
    assert source.retention.settle("orders", LANE, at(path, 2_000)).pruned == 1_999
    assert kept(writer) == (2_000, 2_000)
    assert source.retention.settle("orders", LANE, at(path, 2_000)).pruned == 0


def test_pruning_ends_with_its_budget_and_goes_on_in_the_next_call(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 2_000)
    retention, reached = source_of(path).retention, at(path, 2_000)
    retention.settle("orders", LANE, source_of(path).begin(LANE, "beginning"))
    quieten(path)
    monkeypatch.setattr(settle, "BUDGET", -1.0)
    assert retention.settle("orders", LANE, reached).pruned == BATCH
    quieten(path)
    monkeypatch.setattr(settle, "BUDGET", math.inf)
    assert retention.settle("orders", LANE, reached).pruned == 1_999 - BATCH


@given(noted=st.none() | st.integers(0, 10**6), upto=st.integers(0, 10**6), held=st.integers(0, 10**6), still=st.floats(-10, 10))
def test_it_is_due_at_first_then_when_still_or_over_the_bound(noted: int | None, upto: int, held: int, still: float) -> None:
    ledger = Ledger(noted, upto, first=0, lowest=min(upto, held))
    waiting = max(abs(upto - (noted or 0)), ledger.prunable)
    expected = noted is None or waiting > BOUND or (waiting > 0 and still >= STILL)
    assert is_due(ledger, still) == expected


@pytest.mark.parametrize(
    ("pragma", "remedy"),
    [("max_page_count = 1", "make room"), ("query_only = 1", "allow this user to write")],
    ids=["full", "read only"],
)
def test_a_database_that_cannot_be_written_is_an_unavailable_source(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, remedy: str
) -> None:
    fill(writer, 20)
    source, place = source_of(path), at(path, 20)
    real = sqlite3.connect

    def hindered(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connection = real(*arguments, **more)
        connection.execute(f"pragma {pragma}")
        return connection

    monkeypatch.setattr(database.sqlite3, "connect", hindered)
    with pytest.raises(SourceUnavailable) as caught:
        source.retention.register("p" * 5000, LANE, place)
    assert remedy in caught.value.remedy
    with pytest.raises(SourceUnavailable) as caught:
        source.retention.settle("p" * 5000, LANE, place)
    assert remedy in caught.value.remedy
    monkeypatch.undo()
    source.retention.register("p", LANE, place)
