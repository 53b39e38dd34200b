"""Reading the capture log in chunks: one read transaction each, with a proof that it continues the chunk before it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import pyarrow as pa

from penstock.errors import CaptureBroken, CaptureMissing, ConfigInvalid, LogDamaged, SourcePruned, SourceRewound
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Captured, Catalogue
from penstock.sources.sqlite.database import data_version, enable_remedy, opened, repair_remedy, transaction
from penstock.sources.sqlite.decoder import CHOOSE, LogChunk, LogDecoder, Rows
from penstock.sources.sqlite.heal import heal
from penstock.sources.sqlite.image import AT, COLUMNS, EVERYTHING, OP, SEQ, Choice, Row, imager, text_or_bytes
from penstock.sources.sqlite.point import Point
from penstock.sources.sqlite.portion import CHUNK_BYTES, limited, small_values
from penstock.sources.sqlite.schema import Selects, read_schema

_T = TypeVar("_T")

CHUNK = 500  # positions read at a time, at most
SMALL = 1 << 16  # bytes of a value; rows with a larger one are read one by one
FIRST = 100  # positions read at first, when the size of rows is unknown
FEW = 50  # rows that are read with both images in the time of a check whether they have both

_EXTENT = """select coalesce((select min(seq) from _penstock_log), 1), coalesce((select max(seq) from _penstock_log), 0),
 (select value from _penstock_meta where name = 'incarnation'), schema_version, (select max(number) from _penstock_shape)
 from pragma_schema_version"""


@dataclass(frozen=True, slots=True)
class Extent:
    """The first and the last position of the log, and its incarnation."""

    first: int
    head: int
    incarnation: str


@contextmanager
def reading(
    path: str, is_meant: Selects, choice: Choice = EVERYTHING, *, verifies: bool = True, heals: bool = False
) -> Iterator[Log]:
    """The log of a database, open."""
    with opened(path) as connection:
        yield Log(path, connection, is_meant, choice, verifies=verifies, heals=heals)


class Log:
    """An open log; every read checks it in its own transaction. With `heals`, a change of schema that loses nothing is healed."""

    def __init__(
        self, path: str, connection: sqlite3.Connection, is_meant: Selects, choice: Choice, *, verifies: bool, heals: bool
    ) -> None:
        self._path, self._connection, self._is_meant, self._verifies, self._heals = path, connection, is_meant, verifies, heals
        self._choice = choice
        self._reach, self._has_updates = min(FIRST, CHUNK), False
        self._version: list[int] | None = None
        self._sound: int | None = None  # a position at which tables and triggers were sound
        self._decoder = LogDecoder(path, {}, {}, ())

    def version(self) -> int:
        """A number that changes with every commit, read in a tenth of the time of a query."""
        return data_version(self._connection)

    def place(self, position: int) -> Point | None:
        """The place after the change at this position, if there is one."""
        self.confirm()
        with transaction(self._connection):
            extent = self._extent()
            rows = self._rows(position, position).rows
        return self._decoder.place_after(rows[0], extent.incarnation) if rows else None

    def since(self, moment: datetime) -> Point:
        """The place before the first change of this time or later. Raises ConfigInvalid if the log begins later."""
        self.confirm()
        with transaction(self._connection):
            extent = self._extent()
            at, time = "select seq, datetime(at) from _penstock_log", moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            oldest = self._connection.execute(f"{at} order by seq limit 1").fetchone()
            found = self._connection.execute(f"{at} where at >= julianday(?) order by seq limit 1", (time,)).fetchone()
        first = found[0] if found else extent.head + 1
        if first == extent.first > 1:
            reaches = f"choose --to {extent.first - 1}, or a time after {oldest[1]} UTC"
            raise ConfigInvalid(f"the log of {self._path} begins at change {extent.first}, which was made {oldest[1]} UTC", reaches)
        return self.place(first - 1) or Point(extent.incarnation, extent.first - 1, "")

    def confirm(self, place: Point | None = None) -> Extent:
        """The present extent of the log, and the proof that it still has a place. Raises SourceRewound."""
        return self._healing(lambda: self._confirm(place))

    def _confirm(self, place: Point | None) -> Extent:
        with transaction(self._connection):
            extent = self._extent()
            if place:
                self._continues(extent, place, self._rows(place.position, place.position).rows)
            return extent

    def chunk(self, after: Point, bound: int | None = None) -> LogChunk:
        """The changes after a place, up to `bound` or the head, over a limited number of positions."""
        return self._healing(lambda: self._chunk(after, bound))

    def _healing(self, deed: Callable[[], _T]) -> _T:
        """Call `deed`; if capture is broken, heal it and call again."""
        try:
            return deed()
        except CaptureBroken:
            if not self._heals:
                raise
        heal(self._path, self._is_meant, self._sound)
        return deed()

    def _chunk(self, after: Point, bound: int | None) -> LogChunk:
        with transaction(self._connection):
            extent = self._extent()
            last = min(extent.head, after.position + self._reach, extent.head if bound is None else bound)
            found = self._rows(after.position, last)
            last = found.rows[-1][SEQ] if found.is_cut else last
            self._continues(extent, after, found.rows)
            known = bool(found.rows) and found.rows[0][SEQ] == after.position
            news = Rows(found.rows[1:] if known else found.rows, found.is_doubtful)
            self._is_dense(after.position, last, news.rows)
            healed = {} if self._decoder.is_clear(news.rows) else catalog.healings(self._connection)
        chunk = self._decoder.chunk(news, after, extent.head, healed)
        if found.is_cut or last - after.position == self._reach:
            self._reach = _next_reach(chunk.changes)
        return chunk

    def waiting(self, after: int, upto: int, most: int | None = None) -> tuple[int, int | None]:
        """The number of chosen changes after a position, up to another, and the time of the first."""
        chosen = f"from _penstock_log where seq > ? and seq <= ? and {self._decoder.condition}"
        some = f"select 1 {chosen} limit {-1 if most is None else most}"
        [(changes,)] = self._connection.execute(f"select count(*) from ({some})", (after, upto))
        first = self._connection.execute(f"select {COLUMNS} {chosen} order by seq limit 1", (after, upto)).fetchone()
        return changes, first[AT] if first else None

    def _extent(self) -> Extent:
        first, head, incarnation, *version = self._connection.execute(_EXTENT).fetchone()
        if version != self._version:  # healing adds a shape without a change of the schema
            self._learn()
            self._version = version
        self._sound = head
        return Extent(first, head, incarnation)

    def _learn(self) -> None:
        """Read the catalogue, and check that tables and triggers are as captured."""
        catalogue = catalog.load(self._connection)
        chosen = [captured for captured in catalogue.shapes.values() if self._is_meant(captured.shape.table)]
        if self._verifies:
            self._verify(catalogue, [captured for captured in chosen if captured.is_live])
        imagers = {number: imager(captured.shape, self._choice) for number, captured in catalogue.shapes.items()}
        lineages = {number: captured.lineage for number, captured in catalogue.shapes.items()}
        self._decoder = LogDecoder(self._path, imagers, lineages, {captured.number for captured in chosen})

    def _verify(self, catalogue: Catalogue, live: list[Captured]) -> None:
        schema = read_schema(self._connection)
        if stray := "; ".join(catalog.strays(catalogue, schema, self._is_meant)):
            raise CaptureBroken(stray, f"{enable_remedy(self._path)}, or choose other `tables` in the pipeline file")
        if not live:
            raise CaptureMissing(f"no chosen table is captured in {self._path}", enable_remedy(self._path))
        judged = [captured for captured in live if not captured.is_suspended]
        found = [breach for captured in judged for breach in catalog.breaches(captured, schema)]
        if found:
            what = "; ".join(f"{breach.table} {breach.what}" for breach in found)
            lost = [breach.table for breach in found if breach.loses(None)]
            remedy = repair_remedy(self._path, lost[0]) if lost else enable_remedy(self._path)
            raise CaptureBroken(f"after capture was enabled, {what}", remedy)

    def _rows(self, first: int, last: int) -> Rows:
        """Chosen rows from `first` to `last`, with the rows at both ends in any case; only updates have two images."""
        if last - first > FEW and not self._has_updates:
            found = self._fetched(self._decoder.query_of_one_image, first, last)
            if not _are_updates(found.rows):
                return found
        found = self._fetched(self._decoder.query, first, last)
        self._has_updates = _are_updates(found.rows)
        return found

    def _fetched(self, sql: str, first: int, last: int) -> Rows:
        self._connection.text_factory = str
        try:
            return self._taken(sql, (first, last), is_doubtful=False)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        self._connection.text_factory = text_or_bytes
        return self._taken(sql, (first, last), is_doubtful=True)

    def _taken(self, sql: str, ends: tuple[int, int], *, is_doubtful: bool) -> Rows:
        """All rows; if some are large, the first two and further ones up to CHUNK_BYTES."""
        try:
            with small_values(self._connection, SMALL):
                return Rows(self._connection.execute(sql, ends).fetchall(), is_doubtful)
        except sqlite3.DataError:
            with closing(self._connection.execute(sql, ends)) as cursor:
                rows, is_cut = limited(cursor, CHUNK, CHUNK_BYTES, least=2)
                return Rows(rows, is_doubtful, is_cut)

    def _continues(self, extent: Extent, after: Point, rows: list[Row]) -> None:
        if extent.incarnation != after.incarnation:
            raise SourceRewound(f"the log of {self._path} has another incarnation than the one that was read", CHOOSE)
        if extent.first > (after.position if after.checksum else after.position + 1):
            raise SourcePruned(
                f"the log of {self._path} begins at change {extent.first}; changes after {after.position} are pruned"
            )
        if not after.checksum:
            return
        if not rows or rows[0][SEQ] != after.position:
            raise SourceRewound(f"the log of {self._path} has no change {after.position}; it ends at {extent.head}", CHOOSE)
        if self._decoder.place_after(rows[0], extent.incarnation).checksum != after.checksum:
            raise SourceRewound(f"the change {after.position} of {self._path} is not the one that was delivered", CHOOSE)

    def _is_dense(self, after: int, last: int, rows: list[Row]) -> None:
        found = len(rows)
        if self._decoder.is_choosy:
            [(found,)] = self._connection.execute("select count(*) from _penstock_log where seq > ? and seq <= ?", (after, last))
        if found != max(0, last - after):
            missing = last - after - found
            raise LogDamaged(f"{missing} of the changes {after + 1} to {last} are missing from the log of {self._path}", CHOOSE)


def _next_reach(changes: pa.RecordBatch) -> int:
    """The number of positions to read next, by the size of the last changes: large rows would fill the memory."""
    return max(1, min(CHUNK, CHUNK_BYTES * changes.num_rows // changes.nbytes)) if changes.num_rows else CHUNK


def _are_updates(rows: list[Row]) -> bool:
    return any(row[OP] == "update" for row in rows)
