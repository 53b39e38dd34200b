"""The embedded coordinator. `DESIGN.md` in the folder above says why it is safe."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.change import Lane
from penstock.coordinator import PipelineState, Term
from penstock.coordinators import locks
from penstock.coordinators.held_term import ended
from penstock.coordinators.letters import StoreLetters, alter
from penstock.coordinators.sqlite import presence
from penstock.coordinators.sqlite.candidate import SqliteCandidate
from penstock.coordinators.sqlite.claim import SqliteClaim, claimed
from penstock.coordinators.sqlite.condition import silent
from penstock.coordinators.sqlite.letters import SqliteLetters
from penstock.coordinators.sqlite.store import Store, folder, is_new
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateUnavailable
from penstock.letter import DeadLetter
from penstock.room import unwritable

_CURRENT = "select 1 from terms where pipeline = ? and epoch = ? and seat is not null"

_PLACE = """
insert into watermarks (pipeline, lane, cursor, position, delivered, epoch, attempt) values (?, ?, ?, ?, ?, ?, -1)
on conflict do update set cursor = excluded.cursor, position = excluded.position, delivered = excluded.delivered
"""

_GONE = "pipeline = ? and lane in (select value from json_each(?))"
_TAKE_OVER = f"""
update watermarks set total = total + (select coalesce(sum(total), 0) from watermarks where {_GONE}) where pipeline = ? and lane = ?
"""
_DROP = f"delete from watermarks where {_GONE}"

_SUMS = """
select coalesce(sum(total), 0), coalesce(sum(rate), 0.0), max(advanced_at), max(trouble) from watermarks where pipeline = ?
"""


@dataclass(frozen=True)
class SqliteCoordinator(StoreLetters):
    """Terms and watermarks in one SQLite file; processes on one machine share it.

    `grace` is how many seconds a claim waits for processes of older terms: one that was stopped would keep its lock for ever.
    """

    path: str
    ttl: float = 5.0
    grace: float = 1.0
    clock: Callable[[], float] = time.monotonic

    @property
    def address(self) -> str:
        """The path of the file."""
        return self.path

    def identity(self) -> str | None:
        """The random id of this file; None before there is one."""
        if is_new(self._file):
            return None
        with self._open(writes=False) as store:
            [(identity,)] = store.rows("select identity from about")
            return str(identity)

    def examine(self) -> None:
        """Raise StateUnavailable if this user cannot write the file."""
        if why := _obstacle(Path(self.path)):
            said = f"{self.path} cannot be written: {why}"
            raise StateUnavailable(said, "make its folder, or give this user the right to write")

    def candidate(self, pipeline: str, holder: str) -> SqliteCandidate:
        """Stand for a pipeline; creates the file if there is none."""
        return SqliteCandidate(self._file, pipeline, holder, self.ttl, self.clock)

    @contextmanager
    def claim(self, term: Term, lane: Lane, attempt: int) -> Iterator[SqliteClaim]:
        """Hold a lane; blocks while a predecessor of this term still does."""
        with self._open() as store, claimed(store, term, lane, attempt, self.grace) as claim:
            yield claim

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """How far this lane has been delivered; None for a new pipeline. What is read here outlives a loss of power."""
        if is_new(self._file):
            return None
        with self._open(writes=False) as store:
            found = _watermarks(store, pipeline).get(lane)
            store.flush()
            return found

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of lanes in one step, also backwards, and drop lanes that these replace. Raises TermLost."""
        gone = json.dumps([lane for lane in instead_of if lane not in marks])
        with self._under(term) as store:
            for lane, mark in marks.items():
                store.write(_PLACE, term.pipeline, lane, mark.cursor, mark.position, mark.delivered, term.epoch)
            store.write(_TAKE_OVER, term.pipeline, gone, term.pipeline, next(iter(marks)))
            store.write(_DROP, term.pipeline, gone)

    def forget(self, term: Term) -> None:
        """Remove all watermarks and letters of a pipeline. Raises TermLost."""
        with self._under(term) as store:
            store.write("update terms set error = null where pipeline = ?", term.pipeline)
            store.write("delete from watermarks where pipeline = ?", term.pipeline)
            SqliteLetters(store, term.pipeline).clear()

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error this pipeline stopped with."""
        with self._under(term) as store:
            store.write("update terms set error = ? where pipeline = ?", json.dumps(dict(error)), term.pipeline)

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record what fails and is tried again. Raises TermLost."""
        with self._under(term) as store:
            store.write("update watermarks set trouble = ? where pipeline = ?", json.dumps(dict(trouble)), term.pipeline)

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """What is known of a pipeline."""
        if is_new(self._file):
            return PipelineState()
        with self._open(writes=False) as store:
            return _standing(store, pipeline, self.ttl)

    def _parked(self, pipeline: str) -> Sequence[DeadLetter]:
        if is_new(self._file):
            return []
        with self._open(writes=False) as store:
            return SqliteLetters(store, pipeline).all()

    @contextmanager
    def _sole(self, pipeline: str) -> Iterator[bool]:
        lock = locks.seize(folder(self._file) / f"redrive.{locks.digest(pipeline)}")
        try:
            yield lock is not None
        finally:
            if lock:
                lock.release()

    def _alter(self, step: str, number: int | None, **asked: bool) -> bool:
        with self._open() as store, store.atomic():
            storage = SqliteLetters.of(store, number)
            return bool(storage and alter(step, storage, number, **asked))

    @property
    def _file(self) -> Path:
        """One name for the file, whatever links lead to it: the locks hang on it."""
        return Path(os.path.realpath(self.path))

    @contextmanager
    def _open(self, *, writes: bool = True) -> Iterator[Store]:
        store = Store(self._file, writes=writes)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def _under(self, term: Term) -> Iterator[Store]:
        """Writes that only the holder of a term may do, all or none; no other process writes meanwhile."""
        with self._open() as store, store.atomic():
            if not store.rows(_CURRENT, term.pipeline, term.epoch):
                raise ended(term)
            yield store


def _standing(store: Store, pipeline: str, ttl: float) -> PipelineState:
    terms = store.rows("select epoch, holder, seat, beat_at, ttl, error from terms where pipeline = ?", pipeline)
    epoch, holder, seat, beat_at, own_ttl, error = terms[0] if terms else (0, None, None, None, None, None)
    delivered, rate, advanced_at, trouble = store.rows(_SUMS, pipeline)[0]
    is_held = seat is not None and presence.is_present(store.path, seat, beat_at, own_ttl or ttl)
    silence = silent(store, f"{holder} leads {pipeline}", beat_at, own_ttl or ttl) if is_held else None
    return PipelineState(
        epoch=epoch,
        holder=holder,
        is_held=is_held,
        standbys=len(presence.standbys(store, pipeline, ttl)),
        watermarks=_watermarks(store, pipeline),
        advanced_at=datetime.fromtimestamp(advanced_at, UTC) if advanced_at else None,
        delivered=delivered,
        rate=rate,
        error=json.loads(error) if error else None,
        trouble=silence or (json.loads(trouble) if trouble else None),
        **SqliteLetters(store, pipeline).summary(),
    )


def _watermarks(store: Store, pipeline: str) -> dict[Lane, Watermark]:
    rows = store.rows("select lane, cursor, position, delivered from watermarks where pipeline = ?", pipeline)
    return {Lane(lane): Watermark(Cursor(cursor), position, delivered) for lane, cursor, position, delivered in rows}


def _obstacle(path: Path) -> str | None:
    if path.exists() and not os.access(path, os.W_OK):
        return "this user may not write to it"
    return unwritable(path.parent) if path.parent.is_dir() else "there is no such folder"
