"""Noting how far pipelines have come, and forgetting what none of them needs: rarely, a little at a time, best when nobody writes.

Every commit of ours can cost a writer without patience a "database is locked", so most calls commit nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock import failpoint
from penstock.duration import roughly
from penstock.errors import SourcePruned, SourceUnavailable
from penstock.owner import refuse_another
from penstock.source import Settlement
from penstock.sources.retain import Registrant, Registration, Retain, Sightings, is_overdue, prunable_below
from penstock.sources.sqlite import readers
from penstock.sources.sqlite.database import data_version, is_busy, opened, transaction
from penstock.sources.sqlite.log import Extent, Log
from penstock.sources.sqlite.place import Place

BATCH = 500  # rows deleted in one transaction: half a millisecond
BOUND = 50_000  # changes beyond which it is done although somebody writes
STILL = 1.0  # seconds without a write after which nobody is disturbed
BEAT = 300.0  # seconds after which a pipeline is noted in any case, so that nobody takes it for gone
STILL_BEAT = 60.0  # the same when nobody is disturbed
BUDGET = 0.1  # seconds that one call may take
_PAUSE = 0.002  # seconds left to writers between two transactions
_PATIENCE = 0.05  # seconds to wait for a writer; then it is done another time
_REGISTER_PATIENCE = 5.0  # the same where it cannot be done another time

_RECENT = "select seq from _penstock_log where seq < ? and at >= julianday('now') - ? / 86400.0 order by seq limit 1"

_sightings = Sightings()


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is noted and what could go: `noted` None for a pipeline that is not registered, was released, or lacks its owner."""

    noted: int | None
    upto: int
    first: int
    lowest: int  # below this nobody needs anything, with this pipeline where it is now
    silent: float = 0.0  # seconds since it was noted
    is_stained: bool = False  # a writer has left the number of its transaction behind
    doomed: Sequence[Registration] = ()  # pipelines that are waited for no longer

    @property
    def prunable(self) -> int:
        """How many changes nobody needs."""
        return max(0, self.lowest - self.first)


def is_due(ledger: Ledger, still_seconds: float) -> bool:
    """Whether to write to the database now."""
    due = 0 if ledger.noted is None else max(abs(ledger.upto - ledger.noted), ledger.prunable)
    if ledger.noted is None or due > BOUND or ledger.silent >= BEAT:
        return True
    return still_seconds >= STILL and (due > 0 or ledger.is_stained or bool(ledger.doomed) or ledger.silent >= STILL_BEAT)


def settle(path: str, who: Registrant, upto: Place, retain: Retain, *, budget: float = BUDGET) -> Settlement:
    """Note and forget, if now is a good time.

    Raises SourcePruned if the log no longer goes on at this place, SourceOwned, SourceUnavailable.
    """
    failpoint.reach("source.settling")
    try:
        return _settle(path, who.at(upto.position, retain), upto, retain, budget)
    except SourceUnavailable as error:
        if not is_busy(error):
            raise
        return Settlement(is_put_off=True)


def _settle(path: str, now: Registration, upto: Place, retain: Retain, budget: float) -> Settlement:
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
        done = _write(connection, now, ledger, budget) if is_due(ledger, _still_seconds(path)) else Settlement(is_put_off=True)
        held = [one for one in overdue if one not in doomed]
        return replace(done, overdue=[one.shown([now, *living], extent.head) for one in held])


def register(path: str, who: Registrant, upto: Place, retain: Retain) -> None:
    """Note at once where a pipeline stands. Raises SourcePruned, SourceOwned, SourceUnavailable."""
    with opened(path, "rw", _REGISTER_PATIENCE) as connection:
        seen = _confirmed(path, connection, upto, None)
        with transaction(connection, "immediate"):
            [(first,)] = connection.execute("select coalesce(min(seq), 1) from _penstock_log")
            if first > max(seen.first, upto.position):
                raise SourcePruned(f"the changes behind {upto.position} have just been pruned from the log of {path}")
            readers.note(connection, who.at(upto.position, retain))


def _confirmed(path: str, connection: sqlite3.Connection, upto: Place, mine: Registration | None) -> Extent:
    try:
        return Log(path, connection, lambda table: True, verifies=False).confirm(upto)
    except SourcePruned as error:
        if mine is None or not mine.is_released:
            raise
        why = f"{mine.pipeline} was released, because it had been silent for too long; it was last noted {roughly(mine.silent)} ago"
        raise SourcePruned(f"{error.message}: {why}", error.remedy) from error


def _ledger(
    connection: sqlite3.Connection,
    mine: Registration | None,
    extent: Extent,
    doomed: Sequence[Registration],
    living: Sequence[Registration],
) -> Ledger:
    needed = [one.position for one in living]
    recent = _recent(connection, min(needed), max(one.history for one in living))
    return Ledger(
        noted=mine.position if mine and not mine.is_released and mine.owner == living[0].owner else None,
        upto=living[0].position,
        first=extent.first,
        lowest=prunable_below(needed, extent.first, recent, BATCH),
        silent=mine.silent if mine else 0.0,
        is_stained=connection.execute("select 1 from _penstock_tx").fetchone() is not None,
        doomed=doomed,
    )


def _recent(connection: sqlite3.Connection, below: int, history: float) -> int | None:
    """The first change that could go but is younger than so many seconds."""
    found = connection.execute(_RECENT, (below, history)).fetchone() if history else None
    return found[0] if found else None


def _write(connection: sqlite3.Connection, now: Registration, ledger: Ledger, budget: float) -> Settlement:
    gone, end, version = 0, time.monotonic() + budget, data_version(connection)
    released: list[Registration] = []
    while True:
        with transaction(connection, "immediate"):
            released += [one for one in ledger.doomed if one not in released and readers.release(connection, one)]
            readers.note(connection, now)
            connection.execute("delete from _penstock_tx")  # nobody commits one but a writer that forgot to take it back
            below = min(ledger.lowest, readers.lowest(connection), ledger.first + gone + BATCH)
            went = connection.execute("delete from _penstock_log where seq < ?", (below,)).rowcount
        gone += went
        left = ledger.prunable - gone
        if not went or left <= 0 or time.monotonic() > end or (left <= BOUND and data_version(connection) != version):
            return Settlement(gone, [one.shown([now], ledger.upto) for one in released])
        time.sleep(_PAUSE)


def _still_seconds(path: str) -> float:
    def written(name: str) -> float:
        with suppress(FileNotFoundError):
            return os.stat(name).st_mtime
        return 0.0

    return time.time() - max(written(path), written(path + "-wal"))
