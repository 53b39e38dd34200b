"""How many rows the ranges of a snapshot still hold, without reading more than the last range of each table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from penstock.sources.sqlite import catalog, snapshot
from penstock.sources.sqlite.database import opened
from penstock.sources.sqlite.ranges import RangePlace
from penstock.sources.sqlite.shape import Shape
from penstock.sources.sqlite.triggers import quoted


def remaining(path: str, places: Sequence[RangePlace]) -> int:
    """Rows of these ranges: as many as a range between two others was cut to hold; the last one of a table is counted."""
    ends = [place for place in places if place.range.high is None]
    with opened(path) as connection:
        shapes = {captured.shape.table: captured.shape for captured in catalog.load(connection).live}
        counted = sum(_counted(connection, shapes[end.range.table], end) for end in ends if end.range.table in shapes)
    return counted + snapshot.ROWS * (len(places) - len(ends))


def _counted(connection: sqlite3.Connection, shape: Shape, place: RangePlace) -> int:
    where, bounds = snapshot.condition(shape, place.range)
    sql = f"select count(*) from (select 1 from {quoted(shape.table)} where {where} limit {2 * snapshot.ROWS})"
    try:
        return int(connection.execute(sql, bounds).fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return 0  # the table was dropped or altered, so that the range cannot be read either: the pipeline says so
