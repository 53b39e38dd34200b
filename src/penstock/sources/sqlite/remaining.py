"""The remaining rows of a snapshot, without a read of more than the last range of each table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from penstock.sources.sqlite import catalog, snapshot
from penstock.sources.sqlite.database import opened
from penstock.sources.sqlite.ranges import RangePlace
from penstock.sources.sqlite.shape import Shape
from penstock.sources.sqlite.triggers import quoted


def remaining(path: str, places: Sequence[RangePlace]) -> int:
    """The rows of these ranges when they were cut; in the last range of a table the present rows, up to twice the usual number."""
    ends = [place for place in places if place.range.high is None]
    with opened(path) as connection:
        shapes = {captured.shape.table: captured.shape for captured in catalog.load(connection).live}
        counted = sum(_counted(connection, shapes[end.range.table], end) for end in ends if end.range.table in shapes)
    planned = [place.range.rows for place in places if place.range.high is not None]
    return counted + sum(snapshot.ROWS if rows is None else rows for rows in planned)


def _counted(connection: sqlite3.Connection, shape: Shape, place: RangePlace) -> int:
    where, bounds = snapshot.condition(shape, place.range)
    limit = 2 * snapshot.ROWS
    sql = f"select count(*) from (select 1 from {quoted(shape.table)} where {where} limit {limit})"
    try:
        [(found,)] = connection.execute(sql, bounds)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return 0  # the table was dropped or altered: the pipeline stops at this range
    return int(found) if found < limit else max(limit, place.range.rows or 0)
