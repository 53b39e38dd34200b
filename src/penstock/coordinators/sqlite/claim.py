"""The sole right to deliver on one lane."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators import locks
from penstock.coordinators.claim import LaneClaim, require_free
from penstock.coordinators.letters import take
from penstock.coordinators.sqlite.letters import SqliteLetters
from penstock.coordinators.sqlite.store import Store, folder
from penstock.cursor import Watermark
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

TICK = 0.005
LOOK = 0.1

_CURRENT = "exists (select 1 from terms t where t.pipeline = w.pipeline and t.epoch = ? and t.seat is not null)"
_MINE = f"w.pipeline = ? and w.lane = ? and w.epoch = ? and w.attempt = ? and {_CURRENT}"

_REGISTER = f"""
update watermarks as w set epoch = ?, attempt = ?
where w.pipeline = ? and w.lane = ? and (w.epoch, w.attempt) < (?, ?) and {_CURRENT} returning cursor, position, delivered
"""
_ADVANCE = f"""
update watermarks as w set
    cursor = iif(? >= position, ?, cursor), position = max(position, ?),
    delivered = max(coalesce(delivered, ?), coalesce(?, delivered)), total = total + ?, rate = ?, advanced_at = ?,
    trouble = ?
where {_MINE}
"""
_STANDS = f"select 1 from watermarks w where {_MINE}"


class SqliteClaim(LaneClaim):
    """A lane under (epoch, attempt)."""

    def __init__(self, store: Store, term: Term, lane: Lane, attempt: int) -> None:
        super().__init__(term, lane, attempt)
        self._store, self._letters = store, SqliteLetters(store, term.pipeline)
        self._mine = (term.pipeline, lane, term.epoch, attempt, term.epoch)
        self._begin(store.rows(_REGISTER, term.epoch, attempt, term.pipeline, lane, term.epoch, attempt, term.epoch))

    def secure(self) -> None:
        """Make all parked letters outlive a loss of power, too."""
        with self._turn:
            self._store.flush()

    def _holds(self, rows: Collection[Row] | None) -> Sequence[Hold]:
        return self._letters.holds(rows)

    def _take(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        """Not flushed: a watermark that is recorded later in this file cannot outlive it."""
        with self._store.atomic("normal"):
            if not self._stands():
                raise self._lost()
            return take(step, self._letters, letters)

    def _stands(self) -> bool:
        return bool(self._store.rows(_STANDS, *self._mine)) and not self._store.is_replaced()

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        """Progress and counts in one step; what is committed to a file that was replaced by then does not count."""
        if not (tally.dropped or tally.passed):
            stands = self._move(watermark, tally)
        else:
            with self._store.atomic("normal"):
                if stands := self._move(watermark, tally):
                    self._letters.count(dropped=tally.dropped, passed=tally.passed)
        return stands and not self._store.is_replaced()

    def _move(self, watermark: Watermark, tally: Tally) -> bool:
        place = (watermark.position, watermark.cursor, watermark.position, watermark.delivered, watermark.delivered)
        trouble = json.dumps(dict(tally.trouble)) if tally.trouble else None
        return self._store.write(_ADVANCE, *place, tally.delivered, tally.rate, time.time(), trouble, *self._mine)


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
    """Raise as soon as the claim cannot succeed."""
    rows = store.rows("select epoch, attempt from watermarks where pipeline = ? and lane = ?", term.pipeline, lane)
    held = store.rows("select 1 from terms where pipeline = ? and epoch = ? and seat is not null", term.pipeline, term.epoch)
    require_free(term, lane, attempt, rows[0] if rows else None, is_led=bool(held))
