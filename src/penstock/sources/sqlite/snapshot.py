"""Reading existing rows: in ranges, each in one transaction with the head of the log."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Lane
from penstock.cursor import Cursor
from penstock.errors import CaptureBroken
from penstock.source import Backlog, Window
from penstock.sources.one_lane import moment
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Captured
from penstock.sources.sqlite.database import enable_remedy, opened, schema_version, transaction
from penstock.sources.sqlite.image import Choice, Row, text_or_bytes, to_changes
from penstock.sources.sqlite.log import Log
from penstock.sources.sqlite.point import Point, any_place, of_cursor
from penstock.sources.sqlite.portion import CHUNK_BYTES, limited, small_values
from penstock.sources.sqlite.ranges import ORDINALS, Edge, Range, RangePoint, Ruler, cut, ruler
from penstock.sources.sqlite.schema import Selects, read_schema
from penstock.sources.sqlite.shape import Shape
from penstock.sources.sqlite.triggers import quoted
from penstock.sources.sqlite.vanished import Vanished

ROWS = 25_000  # the rows of a range, which is read into memory: no transaction stays open while the destination accepts them
RANGES = 2_000  # the most ranges of a table: a cursor holds all of them
PIECE = 500  # the rows of one window
SMALL = 1 << 12  # bytes of a value: a range with a larger one is streamed, since it may not fit into memory
ROWS_BYTES = ROWS * SMALL  # bytes of a range with text that is not UTF-8; a larger one is streamed
_ORDINAL = CHANGES.get_field_index("ordinal")
_AGAIN = "begin again: penstock run FILE --from snapshot"


def plan(path: str, is_meant: Selects, start: Point) -> Point:
    """The place before the rows of all captured tables; the stream continues from `start`."""
    with opened(path) as connection:
        live = [captured for captured in catalog.load(connection).live if is_meant(captured.shape.table)]
        ranges = [one for captured in live for one in _ranges(connection, captured.shape)]
        version, now = schema_version(connection), int(time.time() * 1e6)
        return replace(start, ranges=tuple(ranges), planned_at=now, version=version)


def _ranges(connection: sqlite3.Connection, shape: Shape) -> list[Range]:
    measure = ruler(shape)
    return cut(shape.table, _edges(connection, shape, measure), ROWS, RANGES) if measure else [Range(shape.table)]


def _edges(connection: sqlite3.Connection, shape: Shape, measure: Ruler) -> list[Edge | None]:
    """Values of the first column of the key at equal distances; None for one that JSON cannot hold."""
    column, table = _column(shape, measure), quoted(shape.table)
    later = f"select {column} from {table} where {column} > ? order by {column} limit 1 offset {ROWS - 1}"
    found: list[Edge | None] = []
    connection.text_factory = text_or_bytes
    row = connection.execute(f"select {column} from {table} order by {column} limit 1 offset {ROWS}").fetchone()
    while row:
        found.append(row[0] if isinstance(row[0], int | str) else None)
        row = connection.execute(later, row).fetchone()
    return found


def _column(shape: Shape, measure: Ruler) -> str:
    return f"{quoted(measure.column)} collate {measure.collation}" if measure.column else str(shape.row_id)


@dataclass(frozen=True, slots=True)
class SqliteSnapshot:
    """The rows of the captured tables."""

    database: str
    reading: Callable[[], AbstractContextManager[Log]]
    choice: Choice

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows to read before the log."""
        return {Lane(f"snapshot:{place.number}"): place.to_cursor() for place in of_cursor(cursor).pending()}

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range as `refresh`, the head in the last cursor; again: rows removed since an earlier read as `delete`."""
        [place] = _places([cursor])
        with self.reading() as log:
            log.confirm()  # heals, if the settings allow it
        with opened(self.database) as connection:
            with transaction(connection):
                captured = _captured(self.database, connection, place)
                [(head,)] = connection.execute("select coalesce(max(seq), 0) from _penstock_log")
                read_at = replace(place, range=replace(place.range, head=head))
                vanished, rows = Vanished(connection, read_at, self.choice, again=again), _Rows(connection, captured, read_at)
                found = rows.fetched()
                if found is None:
                    yield from _windows(rows.streamed(), vanished, read_at)
                    return
            yield from _windows(iter(found), vanished, read_at, rows.is_doubtful or again)

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """The rows of these ranges when they were cut; in the last one of a table the present rows, up to twice the usual number.

        Their age is that of the plan.
        """
        places = _places(ranges)
        ends = [place for place in places if place.range.high is None]
        with opened(self.database) as connection:
            shapes = {captured.shape.table: captured.shape for captured in catalog.load(connection).live}
            rows = sum(_counted(connection, shapes[end.range.table], end) for end in ends if end.range.table in shapes)
        rows += sum(ROWS if one.range.rows is None else one.range.rows for one in places if one.range.high is not None)
        at = min((place.planned_at for place in places), default=None)
        return Backlog(max((place.since for place in places), default=0), rows, moment(at))

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor of the log after ranges that ended with these cursors."""
        return of_cursor(cursor).joined(_places(ends)).to_cursor()


def _places(ranges: Sequence[Cursor]) -> list[RangePoint]:
    return [place for place in map(any_place, ranges) if isinstance(place, RangePoint)]


def _captured(path: str, connection: sqlite3.Connection, place: RangePoint) -> Captured:
    table = place.range.table
    captured = next((one for one in catalog.load(connection).live if one.shape.table == table), None)
    if captured is None:
        raise CaptureBroken(f"{table} is no longer captured in {path}, and the snapshot is not complete", _AGAIN)
    if captured.is_suspended:
        raise CaptureBroken(f"the capture of {table} is suspended in {path}", f"run: penstock capture resume {path}")
    if found := [breach.what for breach in catalog.breaches(captured, read_schema(connection))]:
        raise CaptureBroken(f"{table} {'; '.join(found)}", enable_remedy(path))
    if place.version != schema_version(connection) and not captured.shape.key:
        what = "the schema was changed, or the file was rewritten, during a snapshot"
        raise CaptureBroken(f"{what}; the row ids of {table}, which has no primary key, may have changed", _AGAIN)
    return captured


class _Rows:
    """The rows of one range, in the layout of log rows."""

    def __init__(self, connection: sqlite3.Connection, captured: Captured, place: RangePoint) -> None:
        self._connection, one, shape = connection, place.range, captured.shape
        self.is_doubtful = False
        fixed = [str(place.position), str(captured.number), "'refresh'", str(place.planned_at), "null", "null"]
        columns = ", ".join([*fixed, shape.row_id or "null", *map(quoted, shape.columns)])
        where, self._bounds = condition(shape, one)
        self._sql = f"select {columns} from {quoted(one.table)} where {where}"

    def fetched(self) -> list[Row] | None:
        """All rows, or None if they are too many or too large for memory."""
        try:
            with small_values(self._connection, SMALL):
                found = self._connection.execute(self._sql, self._bounds).fetchmany(2 * ROWS + 1)
        except sqlite3.DataError:
            return None
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            self.is_doubtful = True
            found, is_cut = limited(self.streamed(), 2 * ROWS + 1, ROWS_BYTES)
            return None if is_cut else found
        return found if len(found) <= 2 * ROWS else None

    def streamed(self) -> Iterator[Row]:
        """The rows one by one, while the transaction is open; some text may not be UTF-8."""
        self._connection.text_factory = text_or_bytes
        return iter(self._connection.execute(self._sql, self._bounds))


def condition(shape: Shape, one: Range) -> tuple[str, list[Edge]]:
    """The SQL of a range; NULL comes before every value, and no comparison finds it."""
    measure = ruler(shape)
    if measure is None or (one.low is None and one.high is None):
        return "1", []
    column = _column(shape, measure)
    above, below = f"{column} >= ?", f"{column} < ?"
    if one.low is None:
        below = f"({below} or {column} is null)"
    parts = [(sql, edge) for sql, edge in ((above, one.low), (below, one.high)) if edge is not None]
    return " and ".join(sql for sql, _ in parts), [edge for _, edge in parts]


def _counted(connection: sqlite3.Connection, shape: Shape, place: RangePoint) -> int:
    where, bounds = condition(shape, place.range)
    limit = 2 * ROWS
    sql = f"select count(*) from (select 1 from {quoted(shape.table)} where {where} limit {limit})"
    try:
        [(found,)] = connection.execute(sql, bounds)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return 0  # the table was dropped or altered: the pipeline stops at this range
    return int(found) if found < limit else max(limit, place.range.rows or 0)


def _windows(rows: Iterator[Row], vanished: Vanished, place: RangePoint, is_doubtful: bool = True) -> Iterator[Window]:
    ordinal, rest = (place.number + 1) * ORDINALS, chain(map(vanished.found, rows), vanished.rows())
    while piece := limited(rest, PIECE, CHUNK_BYTES)[0]:
        changes = to_changes(piece, vanished.imagers, is_doubtful=is_doubtful)
        ordinals = pa.array(range(ordinal + 1, ordinal + 1 + len(piece)), pa.int64())
        yield Window(changes.set_column(_ORDINAL, CHANGES.field(_ORDINAL), ordinals), None, idle=False)
        ordinal += len(piece)
    yield Window(NO_CHANGES, place.to_cursor(), idle=True)
