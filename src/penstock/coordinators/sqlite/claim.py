"""The sole right to deliver on one lane."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators import locks
from penstock.coordinators.sqlite import letters
from penstock.coordinators.sqlite.store import Store, folder
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateLost, TermLost
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

TICK = 0.005
LOOK = 0.1
TOUCH = 1.0
"""Seconds between two writes of a lane on which nothing moves."""

_CURRENT = "exists (select 1 from terms t where t.pipeline = w.pipeline and t.epoch = ? and t.seat is not null)"
_MINE = f"w.pipeline = ? and w.lane = ? and w.epoch = ? and w.attempt = ? and {_CURRENT}"

_REGISTER = f"""
update watermarks as w set epoch = ?, attempt = ?
where w.pipeline = ? and w.lane = ? and (w.epoch, w.attempt) < (?, ?) and {_CURRENT}
"""
_ADVANCE = f"""
update watermarks as w set
    cursor = iif(? >= position, ?, cursor), position = max(position, ?),
    delivered = max(coalesce(delivered, ?), coalesce(?, delivered)), total = total + ?, rate = ?, advanced_at = ?,
    trouble = ?
where {_MINE}
"""
_STANDS = f"select 1 from watermarks w where {_MINE}"
_WATERMARK = "select cursor, position, delivered from watermarks where pipeline = ? and lane = ?"


class SqliteClaim:
    """A lane under (epoch, attempt)."""

    def __init__(self, store: Store, term: Term, lane: Lane, attempt: int) -> None:
        self._store, self._term, self._lane, self._attempt = store, term, lane, attempt
        self._mine = (term.pipeline, lane, term.epoch, attempt, term.epoch)
        self.watermark = _register(store, term, lane, attempt)
        self._recorded = self.watermark
        self._trouble: Mapping[str, str] | None = None
        self._written_at = time.monotonic()
        self._turn = Lock()  # one connection has one transaction at a time

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress, or learn whether the claim still stands. Raises TermLost, StateUnavailable."""
        with self._turn:
            self._advance(watermark, tally, time.monotonic())

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline; or those that share one of these rows."""
        with self._turn:
            return letters.holds(self._store, self._term.pipeline, rows)

    def park(self, parked: Sequence[DeadLetter]) -> None:
        """Keep these letters."""
        with self._parking():
            letters.park(self._store, self._term.pipeline, parked)

    def follow(self, behind: Sequence[DeadLetter]) -> Sequence[bool]:
        """Park those of these that come behind a letter of their key."""
        with self._parking():
            return [letters.follow(self._store, self._term.pipeline, letter) for letter in behind]

    def give_back(self, returned: Sequence[DeadLetter]) -> None:
        """What these were the first to be sent past they have not overtaken."""
        with self._parking():
            for letter in returned:
                letters.give_back(self._store, self._term.pipeline, letter)

    def secure(self) -> None:
        """See that letters outlive a loss of power, too."""
        with self._turn:
            self._store.flush()

    @contextmanager
    def _parking(self) -> Iterator[None]:
        """One step under the claim. Not flushed: a watermark that is recorded later in this file cannot outlive it."""
        with self._turn, self._store.atomic("normal"):
            if not self._store.rows(_STANDS, *self._mine) or self._store.is_replaced():
                raise self._lost()
            yield

    def _advance(self, watermark: Watermark, tally: Tally, now: float) -> None:
        has_news = watermark != self._recorded or tally.delivered or tally.dropped or tally.passed or tally.trouble != self._trouble
        if not has_news and now - self._written_at < TOUCH:
            stands = bool(self._store.rows(_STANDS, *self._mine))
        else:
            stands = self._write(watermark, tally)
            self._recorded, self._trouble, self._written_at = watermark, tally.trouble, now
        if not stands or self._store.is_replaced():
            raise self._lost()

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        """Progress and counts in one step."""
        if not (tally.dropped or tally.passed):
            return self._move(watermark, tally)
        with self._store.atomic("normal"):
            if stands := self._move(watermark, tally):
                letters.count(self._store, self._term.pipeline, dropped=tally.dropped, passed=tally.passed)
        return stands

    def _move(self, watermark: Watermark, tally: Tally) -> bool:
        place = (watermark.position, watermark.cursor, watermark.position, watermark.delivered, watermark.delivered)
        trouble = json.dumps(dict(tally.trouble)) if tally.trouble else None
        return self._store.write(_ADVANCE, *place, tally.delivered, tally.rate, time.time(), trouble, *self._mine)

    def _lost(self) -> TermLost:
        return _lost(self._term, self._lane, self._attempt)


@contextmanager
def claimed(store: Store, term: Term, lane: Lane, attempt: int, grace: float) -> Iterator[SqliteClaim]:
    """A claim, once every predecessor has drawn its last breath, or had its grace."""
    lock = _wait_for_lane(store, term, lane, attempt)
    try:
        _outwait_older_terms(store.path, term, lane, grace)
        yield SqliteClaim(store, term, lane, attempt)
    finally:
        lock.release()


def _wait_for_lane(store: Store, term: Term, lane: Lane, attempt: int) -> locks.Lock:
    path = folder(store.path) / f"{_prefix(term, lane)}{term.epoch}"
    look_at = 0.0
    while True:
        if time.monotonic() >= look_at:
            _check(store, term, lane, attempt)
            look_at = time.monotonic() + LOOK
        if lock := locks.seize(path):
            return lock
        time.sleep(TICK)


def _outwait_older_terms(path: Path, term: Term, lane: Lane, grace: float) -> None:
    deadline = time.monotonic() + grace
    for older in _older_locks(path, term, lane):
        while not (lock := locks.seize(older)) and time.monotonic() < deadline:
            time.sleep(TICK)
        if lock:
            lock.release()


def _older_locks(path: Path, term: Term, lane: Lane) -> list[Path]:
    prefix = _prefix(term, lane)
    found = folder(path).glob(f"{prefix}*")
    return [file for file in found if int(file.name.removeprefix(prefix)) < term.epoch]


def _prefix(term: Term, lane: Lane) -> str:
    return f"lane.{locks.digest(term.pipeline)}.{locks.digest(lane)}."


def _check(store: Store, term: Term, lane: Lane, attempt: int) -> None:
    """Raise as soon as waiting is in vain."""
    rows = store.rows("select epoch, attempt from watermarks where pipeline = ? and lane = ?", term.pipeline, lane)
    if not rows:
        raise StateLost(f"lane {lane} of {term.pipeline} has no watermark", "start the pipeline again")
    held = store.rows("select 1 from terms where pipeline = ? and epoch = ? and seat is not null", term.pipeline, term.epoch)
    if not held or rows[0] >= (term.epoch, attempt):
        raise _lost(term, lane, attempt)


def _register(store: Store, term: Term, lane: Lane, attempt: int) -> Watermark:
    mine = (term.epoch, attempt)
    if not store.write(_REGISTER, *mine, term.pipeline, lane, *mine, term.epoch):
        raise _lost(term, lane, attempt)
    cursor, position, delivered = store.rows(_WATERMARK, term.pipeline, lane)[0]
    return Watermark(Cursor(cursor), position, delivered)


def _lost(term: Term, lane: Lane, attempt: int) -> TermLost:
    return TermLost(f"attempt {attempt} in term {term.epoch} of {term.pipeline} no longer holds lane {lane}")
