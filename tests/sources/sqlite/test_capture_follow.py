"""Windows: on commits, at once, never without a sign of life."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from replay import assert_log_makes, followed, logged, positions, source_of, values

from deadline import PATIENCE, until
from penstock import following
from penstock.change import from_batch
from penstock.following import follow
from penstock.source import ANONYMOUS, Window
from penstock.sources.sqlite import follow as log_follow
from penstock.sources.sqlite import log, wake
from penstock.sources.sqlite.source import LANE

BUSY_WRITER = Path(__file__).with_name("busy_writer.py")


def ends_a_transaction(window: Window) -> bool:
    *_, last = from_batch(window.changes)
    row, size = values(last.after or "")["status"].split(": ")[1].split(" of ")
    return bool(row == size)


@pytest.mark.parametrize("chunk", [5_000, 3], ids=["whole", "in small chunks"])
def test_no_window_ends_inside_a_transaction(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(log, "CHUNK", chunk)
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    with subprocess.Popen([sys.executable, BUSY_WRITER, path, "6000"]) as program:
        found: list[Window] = []
        while program.poll() is None:
            found.append(next(windows))
    [(head,)] = writer.execute("select max(seq) from _penstock_log")
    found += followed(windows, upto=head)
    assert positions(found) == list(range(1, head + 1))
    whole = [window for window in found if window.upto and window.changes.num_rows]
    assert len(whole) > 2
    assert all(map(ends_a_transaction, whole))
    assert [json.loads(window.upto or "")["position"] for window in whole] == [
        window.changes["position"][-1].as_py() for window in whole
    ]


def test_a_window_in_pieces_is_whole_only_at_its_end(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHUNK", 2)
    source = source_of(path)
    writer.execute("insert into orders(status) values('a'), ('b'), ('c'), ('d'), ('e')")
    found = list(islice(follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS), 3))
    assert [(window.changes.num_rows, window.upto is not None, window.idle) for window in found] == [
        (2, False, False),
        (2, False, False),
        (1, True, True),
    ]


def test_large_rows_are_read_few_at_a_time_and_small_ones_many(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders(status) values(?)", [("x" * 100_000,)] * 150 + [("small",)] * 900)
    windows = followed(follow(source_of(path), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS), upto=1050)
    assert positions(windows) == list(range(1, 1051))
    sizes = [window.changes.num_rows for window in windows]
    assert sizes[:2] == pytest.approx([log.CHUNK_BYTES / 100_000] * 2, abs=2)
    assert max(sizes) == log.CHUNK


@pytest.mark.parametrize("is_snapshot", [False, True], ids=["log", "snapshot"])
def test_however_large_and_many_rows_are_few_are_in_memory_at_a_time(
    writer: sqlite3.Connection, path: Path, is_snapshot: bool
) -> None:
    """Small ones come first, so that the reader expects many of them in a window."""
    writer.executemany("insert into orders(status) values(?)", [("small",)] * 700 + [("x" * 5_000_000,)] * 12 + [("small",)] * 5)
    source = source_of(path)
    if is_snapshot:
        cursors = source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
        windows = [window for cursor in cursors for window in source.snapshot.rows(cursor, again=False)]
    else:
        windows = followed(follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS), upto=717)
    assert sum(window.changes.num_rows for window in windows) == 717
    assert max(window.changes.nbytes for window in windows) < 11_000_000


def test_updates_behind_many_inserts_have_both_images(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders(status) select 'new' from json_each(?)", (json.dumps([0] * 3 * log.CHUNK),))
    writer.execute("update orders set status = 'paid' where id % 2")
    writer.execute("delete from orders where id < 10")
    assert_log_makes(path, writer, ["orders"])
    updates = [change for change in logged(path) if change.op == "update"]
    assert len(updates) == 3 * log.CHUNK // 2
    assert {values(change.before or "")["status"] for change in updates} == {"new"}
    assert {values(change.after or "")["status"] for change in updates} == {"paid"}


def test_more_that_came_meanwhile_is_said_to_wait(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHUNK", 2)
    source = source_of(path)
    writer.execute("insert into orders(status) values('a'), ('b'), ('c')")
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    writer.execute("insert into orders(status) values('d')")
    assert [(positions([window]), window.idle) for window in islice(windows, 2)] == [([3], False), ([4], True)]


def test_changes_of_other_tables_move_the_cursor_and_nothing_else(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path, "items")
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    writer.execute("insert into orders(status) values('a'), ('b')")
    writer.execute("insert into items values(1, 1, 'x')")
    writer.execute("insert into orders(status) values('c')")
    found = followed(windows, upto=4)
    assert positions(found) == [3]
    assert source.position(found[-1].upto or source.head(LANE)) == 4
    assert source.backlog(LANE, source.begin(LANE, "beginning")).changes == 1
    again = follow(source, LANE, found[-1].upto or source.head(LANE), ANONYMOUS)
    writer.execute("insert into items values(1, 2, 'y')")
    assert positions(followed(again, upto=5)) == [5]


def test_a_commit_ends_a_wait_of_a_day(writer: sqlite3.Connection, path: Path) -> None:
    with wake.waking(str(path)) as waiting:
        for number in range(3):
            thread = threading.Timer(0.05, commit_elsewhere, (path, number))
            thread.start()
            assert waiting.wait(86_400.0)
            thread.join(PATIENCE)
            while waiting.wait(0.0):  # a commit may write more than once
                continue


def test_a_lone_change_is_given_at_once(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait between two looks is ended by the commit."""
    wait, ended = wake._Inotify.wait, []
    monkeypatch.setattr(wake._Inotify, "wait", lambda self, seconds: ended.append(wait(self, seconds)) or ended[-1])
    source = source_of(path)
    windows = follow(source, LANE, source.head(LANE), ANONYMOUS)
    next(windows)
    until(lambda: next(windows) and not ended[-1])
    ended.clear()
    commit_elsewhere(path, 1)
    assert positions(followed(windows, upto=1)) == [1]
    until(lambda: next(windows) and any(ended))


def commit_elsewhere(path: Path, number: int) -> None:
    with sqlite3.connect(path, timeout=PATIENCE) as other:
        other.execute("insert into orders values(?, 'x', 1)", (number,))
        other.commit()
    other.close()


def test_the_first_commit_into_a_new_wal_is_seen(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    start = source.head(LANE)
    writer.close()
    assert not Path(f"{path}-wal").exists()
    windows = follow(source, LANE, start, ANONYMOUS)
    next(windows)
    with sqlite3.connect(path) as other:
        other.execute("insert into orders values(1, 'x', 1)")
    other.close()
    assert positions(followed(windows, upto=1)) == [1]


def test_no_read_transaction_is_open_between_windows(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    writer.execute("insert into orders values(1, 'x', 1)")
    next(windows)
    writer.execute("insert into orders values(2, 'x', 1)")
    assert writer.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0


def test_a_locked_database_is_unavailable_for_now(path: Path) -> None:
    from contextlib import closing

    from replay import connect

    from penstock.errors import SourceUnavailable
    from penstock.sources.sqlite.install import enable

    with closing(connect(path, journal_mode="delete")) as writer:
        writer.execute("create table t(a)")
        enable(str(path))
        start = source_of(path).begin(LANE, "beginning")
        writer.execute("begin exclusive")
        with pytest.raises(SourceUnavailable) as refused:
            next(follow(source_of(path), LANE, start, ANONYMOUS))
        assert "its disk has room" in refused.value.remedy
        writer.execute("rollback")


def test_polling_serves_where_there_is_no_inotify(writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "elsewhere")
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    next(windows)
    writer.execute("insert into orders values(1, 'x', 1)")
    assert positions(followed(windows, upto=1)) == [1]


def test_who_comes_late_to_a_beat_is_not_asked_to_sleep_for_less_than_nothing(
    writer: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake.sys, "platform", "darwin")  # no inotify
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    assert next(windows).idle
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * following.BEAT, sleep=time.sleep)
    monkeypatch.setattr(log_follow, "time", later)
    writer.execute("insert into orders values(1, 'a', 1)")
    assert positions(followed(windows, upto=1)) == [1]
