"""Rows that an earlier read of a range may have delivered, and that were removed since."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping

import orjson

from penstock.errors import SourcePruned
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.image import COLUMNS, OLD, OP, SEQ, SHAPE, Choice, Imager, Row, imager, text_or_bytes
from penstock.sources.sqlite.ranges import SIDES, RangePoint, one_side, ruler, side_value


class Vanished:
    """Rows that left the range since the snapshot was planned and are not in it again: only their positions in the log are kept."""

    def __init__(self, connection: sqlite3.Connection, place: RangePoint, choice: Choice, *, again: bool) -> None:
        shapes = catalog.load(connection).shapes.items()
        self.imagers = {number: imager(one.shape, choice) for number, one in shapes if one.shape.table == place.range.table}
        self._connection, self._place = connection, place
        self._left: dict[str, int] = {}
        for row in _departures(connection, self.imagers, place) if again else ():
            self._left[self._identity(self._gone(row))] = row[SEQ]

    def found(self, row: Row) -> Row:
        """Record that this row exists."""
        if self._left:
            self._left.pop(self._identity(row), None)
        return row

    def rows(self) -> Iterator[Row]:
        """The rows that are gone, as deletes; valid after all rows were found."""
        for seq in self._left.values():
            row = _logged(self._connection, self.imagers, "seq = ?", seq).fetchone()
            if row is None:
                raise SourcePruned(f"change {seq} was pruned while a snapshot that began at {self._place.since} was read")
            yield self._gone(row)

    def _identity(self, row: Row) -> str:
        """The values of the key, without the names of its columns: they may have been renamed meanwhile."""
        return repr([*orjson.loads(self.imagers[row[SHAPE]].makers[row[OP]].key(row)).values()])

    def _gone(self, row: Row) -> Row:
        return (self._place.position, *one_side(row, OLD, len(self.imagers[row[SHAPE]].shape.columns))[1:])


def _departures(connection: sqlite3.Connection, imagers: Mapping[int, Imager], place: RangePoint) -> Iterator[Row]:
    """Deletes of rows in the range, and updates, which may have changed a key, in order."""
    shapes = ", ".join(map(str, imagers))
    for row in _logged(connection, imagers, f"seq > ? and seq <= ? and shape in ({shapes})", place.since, place.position):
        if OLD in SIDES.get(row[OP], ()) and _is_inside(row, imagers[row[SHAPE]], place):
            yield row
    connection.text_factory = str


def _logged(connection: sqlite3.Connection, imagers: Mapping[int, Imager], where: str, *bounds: int) -> sqlite3.Cursor:
    """Rows of the log, in order; some text may not be UTF-8."""
    widest = 2 * max(len(one.shape.columns) for one in imagers.values())
    columns = ", ".join([COLUMNS, *(f"c{i}" for i in range(widest))])
    connection.text_factory = text_or_bytes
    return connection.execute(f"select {columns} from _penstock_log where {where} order by seq", bounds)


def _is_inside(row: Row, reader: Imager, place: RangePoint) -> bool:
    one, measure = place.range, ruler(reader.shape)
    if measure is None:
        return True
    value = measure.of(side_value(row, OLD, reader.shape, measure))
    is_above = one.low is None or measure.of(one.low) <= value
    return is_above and (one.high is None or value < measure.of(one.high))
