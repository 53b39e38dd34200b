"""A database that does not go on where it was read: restored, replaced, torn, damaged. It shows within one window."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from replay import connect, followed, positions, source_of

from deadline import PATIENCE
from penstock.cursor import Cursor
from penstock.errors import CaptureMissing, CursorInvalid, LogDamaged, SourceRewound
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite import log
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.point import Point
from penstock.sources.sqlite.source import LANE


def copied(writer: sqlite3.Connection, to: Path) -> Path:
    with closing(sqlite3.connect(to)) as copy:
        writer.backup(copy)
    return to


def by_another_file(backup: Path, path: Path) -> None:
    for wal in ("-wal", "-shm"):
        Path(f"{path}{wal}").unlink(missing_ok=True)
    os.replace(backup, path)


def by_overwriting(backup: Path, path: Path) -> None:
    for wal in ("-wal", "-shm"):
        Path(f"{path}{wal}").unlink(missing_ok=True)
    shutil.copyfile(backup, path)


def by_restoring_in_place(backup: Path, path: Path) -> None:
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(path, timeout=PATIENCE)) as target:
        source.backup(target)


WAYS = {"another file": by_another_file, "overwritten": by_overwriting, "restored in place": by_restoring_in_place}


@pytest.mark.parametrize("restore", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("later", [0, 1, 5], ids=["shorter", "as long", "longer"])
def test_a_restored_backup_is_noticed(
    writer: sqlite3.Connection, path: Path, tmp_path: Path, restore: Callable[[Path, Path], None], later: int
) -> None:
    source = source_of(path)
    writer.execute("insert into orders values(1, 'a', 1)")
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    backup = copied(writer, tmp_path / "backup.db")
    writer.execute("insert into orders values(2, 'b', 1)")
    assert positions(followed(windows, upto=2)) == [1, 2]
    with closing(connect(backup)) as other:
        for number in range(later):
            other.execute("insert into orders values(?, 'new', 1)", (100 + number,))
    writer.close()
    restore(backup, path)
    with pytest.raises(SourceRewound, match=r"change 2") as rewound:
        next(windows)
    assert "--from POSITION|beginning|now" in rewound.value.remedy


def test_a_file_that_was_moved_and_copied_back_goes_on(writer: sqlite3.Connection, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    windows = follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS)
    writer.execute("insert into orders values(1, 'a', 1)")
    assert positions(followed(windows, upto=1)) == [1]
    backup = copied(writer, tmp_path / "backup.db")
    writer.close()
    by_another_file(backup, path)
    with closing(connect(path)) as again:
        again.execute("insert into orders values(2, 'b', 1)")
        assert positions(followed(windows, upto=2)) == [2]


def test_the_lost_end_of_a_torn_wal_is_noticed(writer: sqlite3.Connection, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    writer.execute("insert into orders values(1, 'a', 1)")
    writer.execute("pragma wal_checkpoint(truncate)")
    writer.execute("insert into orders values(2, 'b', 1)")
    reached = source.head(LANE)
    torn = tmp_path / "torn.db"
    shutil.copyfile(path, torn)
    wal = Path(f"{path}-wal").read_bytes()
    Path(f"{torn}-wal").write_bytes(wal[: len(wal) * 2 // 3])
    with pytest.raises(SourceRewound, match="no change 2; it ends at 1"):
        next(follow(source_of(torn), LANE, reached, ANONYMOUS))


def test_another_database_is_noticed_at_once(writer: sqlite3.Connection, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(connect(other)) as connection:
        connection.execute("create table orders(id integer primary key, status text, total)")
        enable(str(other))
    with pytest.raises(SourceRewound, match="another incarnation"):
        next(follow(source_of(other), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS))


def test_a_hole_in_the_log_is_damage(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    start = source.begin(LANE, "beginning")
    writer.execute("insert into orders(status) values('a'), ('b'), ('c')")
    writer.executescript("drop trigger _penstock_guard; delete from _penstock_log where seq = 2")
    for tables in (None, "items"):
        with pytest.raises(LogDamaged, match="1 of the changes 1 to 3 are missing"):
            next(follow(source_of(path, tables), LANE, start, ANONYMOUS))


@pytest.mark.parametrize("tables", [None, "items"], ids=["all", "some"])
@pytest.mark.parametrize("is_delivered", [False, True], ids=["ahead", "under the cursor"])
def test_a_hole_behind_a_large_row_is_damage(
    writer: sqlite3.Connection, path: Path, tables: str | None, is_delivered: bool
) -> None:
    """So wide that none of the rows that are read at a time come after it."""
    windows = follow(source_of(path, tables), LANE, source_of(path).begin(LANE, "beginning"), ANONYMOUS)
    writer.execute("insert into orders(status) values(?)", ("x" * 2 * log.SMALL,))
    if is_delivered:
        followed(windows, upto=1)
    writer.execute("insert into orders(status) select 'small' from json_each(?)", (json.dumps([0] * 3 * log.CHUNK),))
    gone = 2 * log.CHUNK
    writer.executescript(f"drop trigger _penstock_guard; delete from _penstock_log where seq between 2 and {1 + gone}")
    with pytest.raises(LogDamaged, match=r"of the changes . to .* are missing"):
        list(islice(windows, 5))


def test_a_garbled_file_is_damage(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    start = source.begin(LANE, "beginning")
    writer.close()
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(LogDamaged, match="not a database"):
        next(follow(source, LANE, start, ANONYMOUS))


def test_no_call_creates_a_file(tmp_path: Path) -> None:
    source, cursor = source_of(tmp_path / "absent.db"), Point("x", 1, "y").to_cursor()
    for deed in (
        lambda: source.head(LANE),
        lambda: source.retention.settle("p", LANE, cursor),
        lambda: next(follow(source, LANE, cursor, ANONYMOUS)),
    ):
        with pytest.raises(CaptureMissing, match="there is no database"):
            deed()
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_capture_says_so(path: Path) -> None:
    with closing(connect(path)):
        pass
    with pytest.raises(CaptureMissing, match="has no capture"):
        source_of(path).head(LANE)


def test_a_new_life_makes_old_cursors_strange(writer: sqlite3.Connection, path: Path) -> None:
    source = source_of(path)
    writer.execute("insert into orders values(1, 'a', 1)")
    old = source.head(LANE)
    source.seek.renew()
    assert source.incarnation(source.head(LANE)) != source.incarnation(old)
    with pytest.raises(SourceRewound):
        next(follow(source, LANE, old, ANONYMOUS))


@pytest.mark.parametrize("text", ['"position"', '"range"', "[]", "null", '{"position": 1}'])
def test_json_that_is_no_cursor_is_refused(path: Path, text: str) -> None:
    with pytest.raises(CursorInvalid):
        source_of(path).position(Cursor(text))
