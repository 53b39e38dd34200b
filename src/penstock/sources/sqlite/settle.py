"""Recording the positions of pipelines and pruning: rarely, in small transactions, preferably between writes.

A commit can fail a writer without a busy timeout ("database is locked"): most calls commit nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock import failpoint
from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.errors import SourcePruned, SourceUnavailable
from penstock.owner import Owner, refuse_another
from penstock.source import Reader, Settlement
from penstock.sources.retain import Registrant, Registration, Retain, Sightings, is_overdue, prunable_below
from penstock.sources.sqlite import readers
from penstock.sources.sqlite.database import data_version, is_busy, opened, transaction
from penstock.sources.sqlite.image import EVERYTHING
from penstock.sources.sqlite.log import Extent, Log
from penstock.sources.sqlite.point import Point, of_cursor
from penstock.text.duration import roughly

BATCH = 500  # rows deleted in one transaction: half a millisecond
BOUND = 50_000  # changes beyond which a call prunes during writes
STILL = 1.0  # seconds without a write after which a commit disturbs no writer
BEAT = 300.0  # seconds after which a running pipeline is noted in any case
STILL_BEAT = 60.0  # the same, without writes
BUDGET = 0.1  # seconds that one call may take
_PAUSE = 0.002  # seconds for writers between two transactions
_PATIENCE = 0.05  # seconds to wait for a writer; then the call is put off
_REGISTER_PATIENCE = 5.0  # seconds to wait in calls that cannot be put off

# The first prunable change that is younger than the history.
_RECENT = "select seq from _penstock_log where seq < ? and at >= julianday('now') - ? / 86400.0 order by seq limit 1"

_sightings = Sightings()


@dataclass(frozen=True, slots=True)
class Ledger:
    """Recorded and prunable positions; `noted` is None for a pipeline that is not registered, was released, or lacks its owner."""

    noted: int | None
    upto: int
    first: int
    lowest: int  # changes below are not needed, with this pipeline at `upto`
    silent: float = 0.0  # seconds since the note
    is_stained: bool = False  # a writer has left the number of its transaction
    doomed: Sequence[Registration] = ()  # pipelines to release

    @property
    def prunable(self) -> int:
        """The number of changes that can be pruned."""
        return max(0, self.lowest - self.first)


def is_due(ledger: Ledger, still_seconds: float) -> bool:
    """Whether to commit now."""
    due = 0 if ledger.noted is None else max(abs(ledger.upto - ledger.noted), ledger.prunable)
    if ledger.noted is None or due > BOUND or ledger.silent >= BEAT:
        return True
    return still_seconds >= STILL and (due > 0 or ledger.is_stained or bool(ledger.doomed) or ledger.silent >= STILL_BEAT)


@dataclass(frozen=True, slots=True)
class SqliteRetention:
    """The registered pipelines of a database, and the pruning of its log."""

    database: str
    retain: Retain

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Record the position at once, also an earlier one. Raises SourcePruned, SourceOwned, SourceUnavailable."""
        place = of_cursor(upto)
        with opened(self.database, "rw", _REGISTER_PATIENCE) as connection:
            seen = _confirmed(self.database, connection, place, None)
            with transaction(connection, "immediate"):
                [(first,)] = connection.execute("select coalesce(min(seq), 1) from _penstock_log")
                if first > max(seen.first, place.position):
                    raise SourcePruned(f"the changes after {place.position} were just pruned from the log of {self.database}")
                readers.note(connection, Registrant(pipeline, lane, owner).at(place.position, self.retain))

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The recorded position of this pipeline, also after its release."""
        with opened(self.database) as connection:
            return next((one.position for one in readers.load(connection) if one.name == (pipeline, lane)), None)

    def readers(self) -> Sequence[Reader]:
        """All registered pipelines."""
        with opened(self.database) as connection, transaction(connection):
            return readers.seen(connection)

    def remarks(self) -> Sequence[str]:
        """None."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Record and prune, unless that would disturb writers. Raises SourcePruned, SourceOwned, SourceUnavailable."""
        failpoint.reach("source.settling")
        place = of_cursor(upto)
        try:
            return _settle(self.database, Registrant(pipeline, lane, owner).at(place.position, self.retain), place, self.retain)
        except SourceUnavailable as error:
            if not is_busy(error):
                raise
            return Settlement(is_put_off=True)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration, or hand it over."""
        with opened(self.database, "rw", _REGISTER_PATIENCE) as connection, transaction(connection, "immediate"):
            return readers.forget(connection, pipeline, owner)


def _settle(path: str, now: Registration, upto: Point, retain: Retain) -> Settlement:
    with opened(path, "rw", _PATIENCE) as connection:
        known = {one.name: one for one in readers.load(connection)}
        mine = known.pop(now.name, None)
        refuse_another(mine, now.owner)
        extent = _confirmed(path, connection, upto, mine)
        at = time.monotonic()
        overdue = [one for one in known.values() if is_overdue(one, extent.head, _sightings.seconds(path, one, at), retain)]
        doomed = overdue if retain.then == "release" else []
        living = [one for one in known.values() if one not in doomed and not one.is_released]
        ledger = _ledger(connection, mine, extent, doomed, [now, *living])
        done = _write(connection, now, ledger) if is_due(ledger, _still_seconds(path)) else Settlement(is_put_off=True)
        held = [one for one in overdue if one not in doomed]
        return replace(done, overdue=[one.shown([now, *living], extent.head) for one in held])


def _confirmed(path: str, connection: sqlite3.Connection, upto: Point, mine: Registration | None) -> Extent:
    try:
        return Log(path, connection, lambda table: True, EVERYTHING, verifies=False, heals=False).confirm(upto)
    except SourcePruned as error:
        if mine is None or not mine.is_released:
            raise
        why = f"{mine.pipeline} was released after it was gone for too long; it was last noted {roughly(mine.silent)} ago"
        raise SourcePruned(f"{error.message}: {why}", error.remedy) from error


def _ledger(
    connection: sqlite3.Connection,
    mine: Registration | None,
    extent: Extent,
    doomed: Sequence[Registration],
    living: Sequence[Registration],
) -> Ledger:
    needed = [one.position for one in living]
    history = max(one.history for one in living)
    recent = connection.execute(_RECENT, (min(needed), history)).fetchone() if history else None
    return Ledger(
        noted=mine.position if mine and not mine.is_released and mine.owner == living[0].owner else None,
        upto=living[0].position,
        first=extent.first,
        lowest=prunable_below(needed, extent.first, recent and recent[0], BATCH),
        silent=mine.silent if mine else 0.0,
        is_stained=connection.execute("select 1 from _penstock_tx").fetchone() is not None,
        doomed=doomed,
    )


def _write(connection: sqlite3.Connection, now: Registration, ledger: Ledger) -> Settlement:
    gone, end, version = 0, time.monotonic() + BUDGET, data_version(connection)
    released: list[Registration] = []
    while True:
        with transaction(connection, "immediate"):
            released += [one for one in ledger.doomed if one not in released and readers.release(connection, one)]
            readers.note(connection, now)
            connection.execute("delete from _penstock_tx")  # a committed number was left by a writer
            below = min(ledger.lowest, readers.lowest(connection), ledger.first + gone + BATCH)
            went = connection.execute("delete from _penstock_log where seq < ?", (below,)).rowcount
        gone += went
        left = ledger.prunable - gone
        if not went or left <= 0 or time.monotonic() > end or (left <= BOUND and data_version(connection) != version):
            return Settlement(gone, [one.shown([now], ledger.upto) for one in released])
        time.sleep(_PAUSE)


def _still_seconds(path: str) -> float:
    """The seconds since the last write to the file or its WAL."""
    written = 0.0
    for name in (path, path + "-wal"):
        with suppress(FileNotFoundError):
            written = max(written, os.stat(name).st_mtime)
    return time.time() - written
