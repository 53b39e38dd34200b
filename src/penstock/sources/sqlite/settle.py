"""Noting how far pipelines have come, and forgetting what none of them needs: rarely, a little at a time, best when nobody writes.

Every commit of ours can cost a writer without patience a "database is locked", so most calls commit nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass

from penstock import failpoint
from penstock.change import Lane
from penstock.errors import SourceUnavailable
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.log import Log
from penstock.sources.sqlite.place import Place

BATCH = 500  # rows deleted in one transaction: half a millisecond
BOUND = 50_000  # changes beyond which it is done although somebody writes
STILL = 1.0  # seconds without a write after which nobody is disturbed
_BUDGET = 0.1  # seconds that one call may take
_PAUSE = 0.002  # seconds left to writers between two transactions
_PATIENCE = 0.05  # seconds to wait for a writer; then it is done another time


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is noted and what could go: `noted` None for a pipeline that is not registered yet."""

    noted: int | None
    upto: int
    first: int
    lowest: int  # of all registered pipelines, with this one where it is now

    @property
    def prunable(self) -> int:
        """How many changes nobody needs."""
        return max(0, self.lowest - self.first)


def is_due(ledger: Ledger, still_seconds: float) -> bool:
    """Whether to write to the database now."""
    if ledger.noted is None:
        return True
    due = max(abs(ledger.upto - ledger.noted), ledger.prunable)
    return due > BOUND or (due > 0 and still_seconds >= STILL)


def settle(path: str, pipeline: str, lane: Lane, upto: Place) -> int:
    """Note and forget, if now is a good time; answers how many changes went."""
    failpoint.reach("source.settling")
    with suppress(SourceUnavailable), opened(path, "rw", _PATIENCE) as connection:
        extent = Log(path, connection, lambda table: True, verifies=False).confirm(upto)
        others = _noted(connection)
        noted = others.pop((pipeline, lane), None)
        ledger = Ledger(noted, upto.position, extent.first, min([upto.position, *others.values()]))
        if is_due(ledger, _still_seconds(path)):
            return _write(connection, pipeline, lane, ledger)
    return 0


def registered(path: str, pipeline: str, lane: Lane) -> int | None:
    """The position noted for a pipeline."""
    with opened(path) as connection:
        return _noted(connection).get((pipeline, lane))


def _noted(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
    rows = connection.execute("select pipeline, lane, position from _penstock_reader")
    return {(pipeline, lane): position for pipeline, lane, position in rows}


def _write(connection: sqlite3.Connection, pipeline: str, lane: Lane, ledger: Ledger) -> int:
    gone, end, version = 0, time.monotonic() + _BUDGET, _version(connection)
    while True:
        with transaction(connection, "immediate"):
            _note(connection, pipeline, lane, ledger.upto)
            below = min(ledger.lowest, ledger.first + gone + BATCH)
            gone += connection.execute("delete from _penstock_log where seq < ?", (below,)).rowcount
        left = ledger.prunable - gone
        if left <= 0 or time.monotonic() > end or (left <= BOUND and _version(connection) != version):
            return gone
        time.sleep(_PAUSE)


def _note(connection: sqlite3.Connection, pipeline: str, lane: Lane, position: int) -> None:
    connection.execute(
        "insert into _penstock_reader values(?, ?, ?, julianday('now'), julianday('now'))"
        " on conflict do update set position = excluded.position, noted_at = excluded.noted_at",
        (pipeline, lane, position),
    )


def _version(connection: sqlite3.Connection) -> int:
    [(version,)] = connection.execute("pragma data_version")
    return int(version)


def _still_seconds(path: str) -> float:
    def written(name: str) -> float:
        with suppress(FileNotFoundError):
            return os.stat(name).st_mtime
        return 0.0

    return time.time() - max(written(path), written(path + "-wal"))
