"""What a pipeline chooses to see: some columns, or no images at all."""

from __future__ import annotations

import json
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import row_ids
from penstock.change import Change, from_batch, to_batch
from penstock.config import parse
from penstock.errors import ConfigInvalid
from penstock.following import follow
from penstock.formats.rqlite import RqliteFormat
from penstock.source import ANONYMOUS, Span
from penstock.sources.sqlite.image import Choice
from penstock.sources.sqlite.log import reading
from penstock.sources.sqlite.shape import Shape
from penstock.sources.sqlite.source import LANE, SqliteSource


def read(path: Path, **choice: Any) -> list[Change]:
    source = SqliteSource(database=str(path), **choice)
    span = Span(LANE, source.begin(LANE, "beginning"), source.head(LANE))
    return [change for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]


def images(changes: list[Change]) -> list[tuple[Any, ...]]:
    return [tuple(text and json.loads(text) for text in (one.key, one.before, one.after)) for one in changes]


@pytest.fixture
def written(writer: sqlite3.Connection, path: Path) -> Path:
    writer.execute("insert into orders values(7, 'new', 1.5)")
    writer.execute("update orders set total = 2.5 where id = 7")
    writer.execute("delete from orders where id = 7")
    writer.execute("insert into items values(7, 1, 'pen')")
    return path


def test_images_hold_the_chosen_columns_and_the_key(written: Path) -> None:
    assert images(read(written, columns=r"orders\.status|items\.nothing")) == [
        ({"id": 7}, None, {"id": 7, "status": "new"}),
        ({"id": 7}, {"id": 7, "status": "new"}, {"id": 7, "status": "new"}),
        ({"id": 7}, {"id": 7, "status": "new"}, None),
        ({"order_id": 7, "line": 1}, None, {"order_id": 7, "line": 1}),
    ]


def test_an_update_that_touched_no_chosen_column_is_told_all_the_same(written: Path) -> None:
    found = read(written, columns="orders.status")[1]
    assert found.op == "update"
    assert found.before == found.after


def test_the_whole_name_must_match(written: Path) -> None:
    assert images(read(written, columns="orders"))[0] == ({"id": 7}, None, {"id": 7})
    assert images(read(written, columns=".*tal"))[0] == ({"id": 7}, None, {"id": 7, "total": 1.5})


def test_with_row_ids_only_there_are_no_images(written: Path) -> None:
    found = read(written, row_ids_only=True)
    assert images(found) == [({"id": 7}, None, None)] * 3 + [({"order_id": 7, "line": 1}, None, None)]
    assert [row_ids(one) for one in found] == [(None, 7), (7, 7), (7, None), (None, None)]


def test_format_rqlite_shows_row_ids_only_as_rqlite_does(written: Path) -> None:
    form = RqliteFormat("orders")
    body = json.loads(form.body(text for text in form.texts(to_batch(read(written, row_ids_only=True)[:3]), None) if text))
    assert [group["events"] for group in body["payload"]] == [
        [{"op": "INSERT", "table": "orders", "new_row_id": 7}],
        [{"op": "UPDATE", "table": "orders", "new_row_id": 7, "old_row_id": 7}],
        [{"op": "DELETE", "table": "orders", "old_row_id": 7}],
    ]


def test_following_and_the_rows_that_are_there_already_are_chosen_too(written: Path, writer: sqlite3.Connection) -> None:
    writer.execute("insert into orders values(8, 'new', 1.5)")
    source = SqliteSource(database=str(written), tables="orders", columns="orders.status")
    [window] = islice(follow(source, LANE, source.begin(LANE, "beginning"), ANONYMOUS), 1)
    assert images(list(from_batch(window.changes)))[0] == ({"id": 7}, None, {"id": 7, "status": "new"})
    rows = [
        change
        for cursor in source.snapshot.ranges(source.begin(LANE, "snapshot")).values()
        for window in source.snapshot.rows(cursor, again=False)
        for change in from_batch(window.changes)
    ]
    assert images(rows) == [({"id": 8}, None, {"id": 8, "status": "new"})]


def test_text_that_is_not_utf8_counts_only_where_it_is_shown(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, cast(x'ff' as text), 1)")
    assert read(path)[0].error == "orders.status is not valid UTF-8"
    assert read(path, columns=r"orders\.total")[0].error is None
    assert read(path, row_ids_only=True)[0].error is None


def test_a_watermark_outlives_another_choice(written: Path) -> None:
    everything, some = SqliteSource(database=str(written)), SqliteSource(database=str(written), row_ids_only=True)
    cursor = everything.cursor_after(read(written)[1], everything.begin(LANE, "beginning"))
    assert some.cursor_after(read(written, row_ids_only=True)[1], some.begin(LANE, "beginning")) == cursor
    assert some.backlog(LANE, cursor).changes == 2


def test_a_count_that_ends_at_a_bound_looks_at_no_more_of_the_log(writer: sqlite3.Connection, path: Path) -> None:
    def steps(most: int | None) -> int:
        taken = []
        with reading(str(path), lambda _: True) as log:
            log.confirm()
            log._connection.set_progress_handler(lambda: taken.append(1), 10)
            assert log.waiting(0, 5000, most)[0] == (most or 5000)
        return len(taken)

    writer.executemany("insert into orders(status) values(?)", [("new",)] * 5000)
    assert steps(10) * 20 < steps(None)


def test_a_choice_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    rest = {"name": "x", "sink": {"type": "discard"}}
    with pytest.raises(ConfigInvalid, match="columns: '\\(' is not a regular expression"):
        parse(rest | {"source": {"type": "sqlite", "database": "x.db", "columns": "("}}, tmp_path)
    with pytest.raises(ConfigInvalid, match="exclude each other"):
        parse(rest | {"source": {"type": "sqlite", "database": "x.db", "columns": "a", "row_ids_only": True}}, tmp_path)
    with pytest.raises(ConfigInvalid, match=r"retain\.changes is 0"):
        parse(rest | {"source": {"type": "sqlite", "database": "x.db", "retain": {"changes": 0}}}, tmp_path)


names = st.lists(st.sampled_from(["a", "b", "c", "id", "a.b"]), unique=True, min_size=1)


@given(columns=names, keys=st.integers(0, 2), expression=st.sampled_from([None, "t.a", "t..", ".*", "a", r"t\.(b|c)"]))
def test_the_key_is_always_shown_and_the_order_of_columns_kept(columns: list[str], keys: int, expression: str | None) -> None:
    shape = Shape("t", tuple(columns), tuple(columns[:keys]), "rowid", uniques=(), reals=(), create_sql="")
    shown = Choice(expression).of(shape)
    assert set(columns[:keys]) <= set(shown)
    assert shown == [name for name in columns if name in shown]
    if expression is None:
        assert shown == columns
