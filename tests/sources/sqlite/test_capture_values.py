"""Every value of SQLite comes through exactly, or the event says which one could not."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay import logged, value, values

from penstock.sources.sqlite.image import VALUES, imager
from penstock.sources.sqlite.shape import Shape

AWKWARD = [
    None,
    2**63 - 1,
    -(2**63),
    2**53 + 1,
    0,
    0.0,
    -0.0,
    5e-324,
    1e308,
    -1.7976931348623157e308,
    0.1,
    1e16,
    1.0,
    math.inf,
    -math.inf,
    1,
    "1",
    "",
    "nul\x00inside",
    'quotes " \\ and \n\t\x1f',
    "\u2028 \U0001f600 \ufffe",
    b"",
    b"\x00\xff",
    b"text",
    '{"$blob": "AA=="}',
    "null",
]


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("awkward", AWKWARD, ids=repr)
def test_a_value_is_the_same_in_every_event(writer: sqlite3.Connection, path: Path, awkward: object) -> None:
    writer.execute("insert into orders values(1, 'x', ?)", (awkward,))
    writer.execute("update orders set status = 'y'")
    writer.execute("delete from orders")
    inserted, updated, deleted = logged(path)
    for image in (inserted.after, updated.before, updated.after, deleted.before):
        assert image
        assert same(values(image)["total"], awkward)


@pytest.mark.parametrize("awkward", [found for found in AWKWARD if found is not None], ids=repr)
def test_a_value_is_the_same_in_a_key(writer: sqlite3.Connection, path: Path, awkward: object) -> None:
    writer.execute("insert into items values(1, ?, 'x')", (awkward,))
    [change] = logged(path)
    assert same(values(change.key)["line"], awkward)


@given(st.floats(allow_nan=False))
def test_doubles_come_back_bit_for_bit(number: float) -> None:
    shape = Shape(table="t", columns=("a",), key=(), row_id="rowid", uniques=(), reals=("a",), create_sql="")
    row = (1, 1, "insert", 0, None, None, 1, number)
    assert len(row) == VALUES + 1
    assert same(value(json.loads(imager(shape).makers["insert"].after(row) or "")["a"]), number)


def test_text_that_is_not_utf8_marks_its_event_and_no_other(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into orders values(1, 'good', 1)")
    writer.execute("insert into orders values(2, cast(x'ff41' as text), 2)")
    writer.execute("insert into orders values(3, 'good too', x'ff')")
    writer.execute("update orders set status = 'mended' where id = 2")
    first, bad, last, mended = logged(path)
    assert [change.error for change in (first, bad, last, mended)] == [
        None,
        "orders.status is not valid UTF-8",
        None,
        "orders.status is not valid UTF-8",
    ]
    assert json.loads(bad.after or "")["status"] == {"$text": "/0E="}
    assert values(mended.after or "") == {"id": 2, "status": "mended", "total": 2}
    assert values(last.after or "") == {"id": 3, "status": "good too", "total": b"\xff"}


def test_a_key_that_is_not_utf8_still_has_a_witness(writer: sqlite3.Connection, path: Path) -> None:
    writer.execute("insert into items values(cast(x'ff' as text), 1, 'x')")
    writer.execute("insert into items values('fine', 1, 'x')")
    assert [change.position for change in logged(path)] == [1, 2]


def test_all_nulls_and_all_types_of_columns(writer: sqlite3.Connection, path: Path) -> None:
    from penstock.sources.sqlite.install import enable

    writer.execute("create table kinds(i integer, r real, t text, b blob, d date, o boolean, s datetime, v varchar(3), n numeric)")
    enable(str(path))
    writer.execute("insert into kinds default values")
    writer.execute("insert into kinds values('7', 7, 7, '7', '1990-01-02', true, '2026-01-01 00:00', 'longer', '7.0')")
    empty, full = (values(change.after or "") for change in logged(path))
    assert set(empty.values()) == {None}
    assert repr(list(full.values())) == repr([7, 7.0, "7", "7", "1990-01-02", 1, "2026-01-01 00:00", "longer", 7])


def test_the_time_is_that_of_the_statement_in_utc(writer: sqlite3.Connection, path: Path) -> None:
    [(before,)] = writer.execute("select cast(round((julianday('now') - 2440587.5) * 86400000) as integer)")
    writer.execute("insert into orders values(1, 'x', 1), (2, 'x', 1)")
    one, other = logged(path)
    assert one.at == other.at
    assert before * 1000 <= one.at <= before * 1000 + 5_000_000
