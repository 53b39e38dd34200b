"""Rows that an earlier reading of a range may have told, and that are there no longer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping

from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.image import COLUMNS, OLD, OP, SHAPE, Choice, Imager, Row, imager, text_or_bytes
from penstock.sources.sqlite.ranges import SIDES, RangePlace, one_side, ruler, side_value


class Vanished:
    """Candidates by key: whoever has left the range since the snapshot was planned, unless it is found there again."""

    def __init__(self, connection: sqlite3.Connection, place: RangePlace, choice: Choice, *, again: bool) -> None:
        shapes = catalog.load(connection).shapes.items()
        self.imagers = {number: imager(one.shape, choice) for number, one in shapes if one.shape.table == place.range.table}
        self._left: dict[str, Row] = {}
        for row in _departures(connection, self.imagers, place) if again else ():
            reader = self.imagers[row[SHAPE]]
            gone = one_side(row, OLD, len(reader.shape.columns))
            self._left[reader.makers["delete"].key(gone)] = (place.position, *gone[1:])

    def found(self, row: Row) -> Row:
        """This row is there."""
        if self._left:
            self._left.pop(self.imagers[row[SHAPE]].makers[row[OP]].key(row), None)
        return row

    def rows(self) -> Iterator[Row]:
        """What is really gone, as deletes; to be asked once all rows were found."""
        yield from self._left.values()


def _departures(connection: sqlite3.Connection, imagers: Mapping[int, Imager], place: RangePlace) -> Iterator[Row]:
    """Deletes, and updates that may have changed a key, of rows in the range, in order."""
    widest = 2 * max(len(one.shape.columns) for one in imagers.values())
    columns = ", ".join([COLUMNS, *(f"c{i}" for i in range(widest))])
    shapes = ", ".join(map(str, imagers))
    sql = f"select {columns} from _penstock_log where seq > ? and seq <= ? and shape in ({shapes}) order by seq"
    connection.text_factory = text_or_bytes
    for row in connection.execute(sql, (place.since, place.position)):
        if OLD in SIDES.get(row[OP], ()) and _is_inside(row, imagers[row[SHAPE]], place):
            yield row
    connection.text_factory = str


def _is_inside(row: Row, reader: Imager, place: RangePlace) -> bool:
    one, measure = place.range, ruler(reader.shape)
    if measure is None:
        return True
    value = measure.of(side_value(row, OLD, reader.shape, measure))
    is_above = one.low is None or measure.of(one.low) <= value
    return is_above and (one.high is None or value < measure.of(one.high))
