"""The rows that are there already, then the log: whatever is written meanwhile, nothing is missing and nothing comes twice."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay import connect, exact, followed, positions, present, replayed, source_of
from replay import values as values_of
from test_capture_histories import SCHEMAS, is_strict, statement

from examples import examples
from facts import row_ids
from penstock.change import Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import CaptureBroken
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite import snapshot
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.point import of_cursor
from penstock.sources.sqlite.ranges import Ruler
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.transform.function import ROOM

KEYED = {name: sql for name, sql in SCHEMAS.items() if "on update cascade" not in sql and is_strict(sql)}


@contextmanager
def ranges_of(rows: int) -> Iterator[None]:
    """Ranges so small that a few rows make several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "ROWS", rows)
        yield


@pytest.fixture(params=["int", "text", "real", "blob", "mixed"])
def filled(request: pytest.FixtureRequest, writer: sqlite3.Connection, path: Path) -> SqliteSource:
    """100 rows of which no cursor can hold all keys, or not in so few ranges."""
    kinds = {"int": [int], "text": ["{:03}".format], "real": [lambda n: n + 0.5], "blob": [lambda n: bytes([n])]}
    makers: list[Any] = kinds.get(request.param, [int, float, lambda n: n + 0.5])
    keys = [(makers[number % len(makers)](number), "x") for number in range(100)]
    writer.execute("create table keyed(id primary key, what) without rowid")
    writer.executemany("insert into keyed values(?, ?)", keys)
    enable(str(path))
    return source_of(path, "keyed")


def test_rows_that_are_still_to_come_are_counted_however_few_the_ranges_are(
    filled: SqliteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "ROWS", 3)
    monkeypatch.setattr(snapshot, "RANGES", 4)
    left = dict(filled.snapshot.ranges(filled.begin(LANE, "snapshot")))
    assert len(left) <= 6
    assert 97 <= filled.snapshot.remaining([*left.values()]).changes <= 100, "all but a part of the last range"
    told = 0
    for lane in list(left):
        cursor = left.pop(lane)
        told += sum(window.changes.num_rows for window in filled.snapshot.rows(cursor, again=False))
        found = filled.snapshot.remaining([*left.values()]).changes
        assert 100 - told - 3 <= found <= 100 - told
    assert (told, filled.snapshot.remaining([]).changes) == (100, 0)


def test_a_snapshot_that_an_earlier_version_has_planned_is_read(writer: sqlite3.Connection, path: Path) -> None:
    """Its cursors do not have the rows of a range; it ignores them in ours, which have a name of their own."""
    writer.executemany("insert into orders(status) values(?)", [("a",)] * 7)
    source = source_of(path, "orders")
    with ranges_of(3):
        start = source.begin(LANE, "snapshot")
        facts = json.loads(start)
        assert facts.pop("rows") == [3, 3, 0]
        assert [len(one) for one in facts["ranges"]] == [4, 4, 4]
        cursors = source.snapshot.ranges(Cursor(json.dumps(facts))).values()
        assert source.snapshot.remaining([*cursors]).changes == 7
        unnumbered = [
            Cursor(json.dumps({name: fact for name, fact in json.loads(one).items() if name != "rows"})) for one in cursors
        ]
        assert source.snapshot.remaining(unnumbered).changes == 7
        ends = [[*source.snapshot.rows(one, again=False)][-1].upto for one in unnumbered]
    assert source.snapshot.joined(start, [end for end in ends if end]) == source.begin(LANE, "now")


class Reading:
    """A snapshot under way, range by range, in any order."""

    def __init__(self, source: SqliteSource) -> None:
        self.source, self.start = source, source.begin(LANE, "snapshot")
        self.left = dict(source.snapshot.ranges(self.start))
        self.ends: dict[str, Cursor] = {}
        self.begun: set[str] = set()
        self.told: list[Change] = []

    def read(self, chance: int) -> None:
        lane = list(self.left)[chance % len(self.left)]
        cursor = self.left.pop(lane)
        for window in self.source.snapshot.rows(cursor, again=lane in self.begun):
            self.told += from_batch(window.changes)
            if window.upto:
                self.ends[lane] = window.upto

    def begin(self, chance: int) -> None:
        """Read a range and die in the middle."""
        lane = list(self.left)[chance % len(self.left)]
        for window in self.source.snapshot.rows(self.left[lane], again=lane in self.begun):
            rows = list(from_batch(window.changes))
            self.told += rows[: chance % (len(rows) + 1)]
        self.begun.add(lane)

    def finish(self) -> list[Change]:
        while self.left:
            self.read(0)
        lanes = list(self.source.snapshot.ranges(self.start))
        after = self.source.snapshot.joined(self.start, [self.ends[lane] for lane in lanes])
        head = self.source.position(self.source.head(LANE))
        found = followed(follow(self.source, LANE, after, ANONYMOUS), upto=head) if head else []
        return self.told + [change for window in found for change in from_batch(window.changes)]


def write(connection: sqlite3.Connection, sql: str) -> None:
    with suppress(sqlite3.Error):
        connection.execute(sql)


@pytest.mark.parametrize("schema", KEYED.values(), ids=KEYED)
@settings(max_examples=examples(25))
@given(
    before=st.lists(statement, max_size=8),
    steps=st.lists(st.one_of(statement, st.integers(0, 9)), max_size=14),
    recursive=st.booleans(),
)
@example(["insert into t(a, b, c) values (1, 1, 1), (2, 2, 2), (3, 3, 3)"], [0, "update t set a = a + 5 where a is 1", 0], False)
@example(["insert into t(a, b, c) values (1, 1, 1), (2, 2, 2), (3, 3, 3)"], [1, "update t set a = a + 5 where a is 1", 0], False)
@example(["insert into t(a, b, c) values ('a', 1, 1), ('b', 2, 2)"], [0, "replace into t(a, b, c) values ('a', 1, 3)", 0], False)
def test_rows_and_stream_together_make_the_table(schema: str, before: list[str], steps: list[str | int], recursive: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, ranges_of(1):
        path = Path(folder, "shop.db")
        with closing(connect(path, recursive_triggers=recursive, synchronous="off")) as connection:
            connection.executescript(schema)
            for sql in before:
                write(connection, sql)
            write(connection, "commit")
            tables = enable(str(path)).tables
            reading = Reading(source_of(path))
            for step in steps:
                if isinstance(step, str):
                    write(connection, step)
                elif reading.left:
                    reading.read(step)
            write(connection, "commit")
            rows = replayed(reading.finish())
            for table in tables:
                assert sorted(map(exact, rows.get(table, {}).values()), key=repr) == present(connection, table), table


@pytest.mark.parametrize("schema", KEYED.values(), ids=KEYED)
@settings(max_examples=examples(25))
@given(steps=st.lists(st.one_of(statement, statement, st.integers(0, 9), st.floats(0, 9)), max_size=16))
@example([2.0, "delete from t where a is 2", 0])
@example([3.0, "update t set a = a + 5 where a is 2", 0])
@example(["update or ignore t set a = a + 1 where a is 1", "delete from t"])
def test_what_an_interrupted_reading_told_is_put_right_by_the_next_one(schema: str, steps: list[str | int | float]) -> None:
    with tempfile.TemporaryDirectory() as folder, ranges_of(2):
        path = Path(folder, "shop.db")
        with closing(connect(path, synchronous="off")) as connection:
            connection.executescript(schema)
            connection.execute("insert into t(a, b, c) values (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)")
            tables = enable(str(path)).tables
            reading = Reading(source_of(path))
            for step in steps:
                if isinstance(step, str):
                    write(connection, step)
                elif reading.left:
                    reading.begin(int(step)) if isinstance(step, float) else reading.read(step)
            write(connection, "commit")
            rows = upserted(reading.finish())
            for table in tables:
                assert sorted(map(exact, rows.get(table, {}).values()), key=repr) == present(connection, table), table


def upserted(changes: list[Change]) -> dict[str, dict[str, dict[str, object]]]:
    """The tables of a receiver that applies everything as it comes."""
    tables: dict[str, dict[str, dict[str, object]]] = {}
    for change in changes:
        table, key = tables.setdefault(change.table, {}), json.loads(change.key)
        if change.before is not None:
            old = json.loads(change.before)
            table.pop(json.dumps({name: old.get(name, row_ids(change)[0]) for name in key}), None)
        if change.after is not None:
            table[json.dumps(key)] = values_of(change.after)
    return tables


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=4),
    st.text("aAbB \0", max_size=4),
    st.binary(max_size=4),
)


@settings(max_examples=examples(300))
@given(values, values, st.sampled_from(["BINARY", "NOCASE", "RTRIM"]))
def test_values_are_ordered_as_sqlite_orders_them(left: object, right: object, collation: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t(c)")
        connection.execute("insert into t values(?)", (left,))
        [(is_behind,)] = connection.execute(f"select c collate {collation} >= ? from t", (right,))
    measure = Ruler("c", collation)
    assert (measure.of(left) >= measure.of(right)) == bool(is_behind)


def test_rows_whose_key_is_null_are_in_the_first_range(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("create table notes(name text primary key, text)")
    writer.executemany("insert into notes values(?, 'x')", [("a",), (None,), ("b",), (None,)])
    enable(str(path))
    with ranges_of(1):
        changes = Reading(source_of(path, "notes")).finish()
    assert sorted(change.key for change in changes) == ['{"name":"a"}', '{"name":"b"}', '{"name":null}', '{"name":null}']


def test_rows_of_a_snapshot_are_refreshes_with_the_position_they_are_true_at(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders values(?, 'new', 1.5)", [(i,) for i in range(1, 8)])
    with ranges_of(3):
        reading = Reading(source_of(path, "orders"))
        writer.execute("update orders set total = 2 where id = 1")
        changes = reading.finish()
    assert {(change.op, change.position) for change in changes} == {("refresh", 8)}
    assert [change.key for change in changes] == [f'{{"id":{i}}}' for i in range(1, 8)]
    assert changes[0].after == '{"id":1,"status":"new","total":2}'
    ordinals = {change.ordinal for change in changes}
    assert len(ordinals) == 7
    assert max(ordinals) < min(ordinals) * ROOM, "a letter of a row must not be taken for what a function made of another"


def test_a_range_that_is_read_again_gives_the_same_bytes_while_nothing_was_written(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'new', 1)")
    source = source_of(path)
    [cursor, *_] = source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
    readings = [[window.changes for window in source.snapshot.rows(cursor, again=again)] for again in (False, True)]
    assert readings[0] == readings[1]


def test_rows_that_have_left_a_range_are_not_held_in_memory(writer: sqlite3.Connection, path: Path) -> None:
    large, rows = 500_000, 40
    writer.executemany("insert into orders values(?, ?, 1)", [(i, "x" * large) for i in range(rows)])
    source = source_of(path, "orders")
    [cursor, *_] = source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
    writer.execute("delete from orders")
    tracemalloc.start()
    gone = sum(window.changes.num_rows for window in source.snapshot.rows(cursor, again=True))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (gone, peak < rows * large // 2) == (rows, True)


def test_text_that_is_not_utf8_is_told_and_the_rest_of_its_range_too(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, cast(x'ff' as text), 1), (2, 'good', 1)")
    bad, good = Reading(source_of(path, "orders")).finish()
    assert bad.error == "orders.status is not valid UTF-8"
    assert (good.error, good.after) == (None, '{"id":2,"status":"good","total":1}')


def test_a_row_is_found_again_after_its_key_got_another_name(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'a', 1), (2, 'b', 1), (3, 'c', 1)")
    source = source_of(path, "orders")
    [cursor] = source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
    writer.execute("update orders set total = 2 where id = 1")
    writer.execute("delete from orders where id = 2")
    writer.execute("alter table orders rename column id to number")
    found = [change for window in source.snapshot.rows(cursor, again=True) for change in from_batch(window.changes)]
    assert [(one.op, one.key) for one in found] == [
        ("refresh", '{"number":1}'),
        ("refresh", '{"number":3}'),
        ("delete", '{"id":2}'),
    ]


def test_a_removed_row_with_text_that_is_not_utf8_has_the_error_of_its_refresh(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, cast(x'ff' as text), 1)")
    source = source_of(path, "orders")
    [cursor] = source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
    writer.execute("delete from orders")
    [gone] = [change for window in source.snapshot.rows(cursor, again=True) for change in from_batch(window.changes)]
    assert (gone.op, gone.error) == ("delete", "orders.status is not valid UTF-8")


def test_a_range_that_outgrows_memory_is_streamed(writer: sqlite3.Connection, path: Path) -> None:
    with ranges_of(2):
        reading = Reading(source_of(path, "orders"))  # one range: the table is still empty
        writer.executemany("insert into orders values(?, 'new', 1)", [(i,) for i in range(1, 10)])
        changes = reading.finish()
    assert [change.key for change in changes] == [f'{{"id":{i}}}' for i in range(1, 10)]


def test_vacuum_may_renumber_a_table_without_key_so_its_snapshot_begins_anew(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("create table notes(text)")
    writer.executemany("insert into notes values(?)", [("a",), ("b",), ("c",)])
    enable(str(path))
    with ranges_of(1):
        reading = Reading(source_of(path, "notes"))
        reading.read(0)
        writer.execute("delete from notes where text = 'a'")
        writer.execute("vacuum")
        with pytest.raises(CaptureBroken, match=r"no primary key.*--from snapshot"):
            reading.finish()


def test_a_column_that_is_added_in_the_middle_is_in_what_is_read_later(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders values(?, 'new', 1)", [(1,), (2,)])
    with ranges_of(1):
        reading = Reading(source_of(path, "orders"))
        reading.read(0)
        writer.execute("alter table orders add column note default 'none'")
        writer.execute("update orders set note = 'x' where id = 1")
        told = reading.finish()
    assert [(change.op, change.after) for change in told if change.op in ("refresh", "update")][:2] == [
        ("refresh", '{"id":1,"status":"new","total":1}'),
        ("refresh", '{"id":2,"status":"new","total":1,"note":"none"}'),
    ]
    assert upserted([change for change in told if change.op != "schema"])["orders"]['{"id": 1}']["note"] == "x"


def test_once_the_stream_is_past_all_heads_its_cursor_is_a_plain_one(writer: sqlite3.Connection, path: Path) -> None:
    writer.executemany("insert into orders values(?, 'new', 1)", [(1,), (2,), (3,)])
    with ranges_of(1):
        reading = Reading(source_of(path, "orders"))
        reading.read(0)
        writer.execute("update orders set total = 2")
        reading.finish()
    source = reading.source
    lanes = source.snapshot.ranges(reading.start)
    after = source.snapshot.joined(reading.start, [reading.ends[lane] for lane in lanes])
    assert of_cursor(after).ranges
    windows = followed(follow(source, LANE, after, ANONYMOUS), upto=6)
    assert positions(windows) == [4]
    assert windows[-1].upto == source.head(LANE)
