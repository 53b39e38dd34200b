"""The exclusive right to deliver one lane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators import locks
from penstock.coordinators.claim import require_free
from penstock.coordinators.row_claim import LANE, TERM, RowClaim
from penstock.coordinators.sqlite.letters import SqliteLetters
from penstock.coordinators.sqlite.store import StateStore, folder
from penstock.cursor import Watermark

TICK = 0.005
LOOK = 0.1

_TERM = TERM.format(schema="")
_REGISTER = f"""
update watermarks as w set epoch = :epoch, attempt = :attempt
where {LANE} and (w.epoch, w.attempt) < (:epoch, :attempt) and exists ({_TERM}) returning cursor, position, delivered
"""
_LAST = f"select w.epoch, w.attempt, exists ({_TERM}) from watermarks w where {LANE}"


class SqliteClaim(RowClaim):
    """A lane under (epoch, attempt). A commit to a file that was replaced does not count."""

    letters_in = SqliteLetters
    _store: StateStore

    def _stands(self) -> bool:
        return super()._stands() and not self._store.is_replaced()

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        return super()._write(watermark, tally) and not self._store.is_replaced()


@contextmanager
def claimed(store: StateStore, term: Term, lane: Lane, attempt: int, grace: float) -> Iterator[SqliteClaim]:
    """A claim, once every predecessor has ended or its grace is over."""
    with _wait_for_lane(store, term, lane, attempt):
        _outwait_older_terms(store.path, term, lane, grace)
        yield SqliteClaim(store, term, lane, attempt, _REGISTER)


def _wait_for_lane(store: StateStore, term: Term, lane: Lane, attempt: int) -> locks.Lock:
    path = folder(store.path) / f"{_prefix(term, lane)}{term.epoch}"
    look_at = 0.0
    while True:
        if time.monotonic() >= look_at:
            found = store.rows(_LAST, pipeline=term.pipeline, lane=lane, epoch=term.epoch)
            require_free(term, lane, attempt, found[0][:2] if found else None, is_led=bool(found and found[0][2]))
            look_at = time.monotonic() + LOOK
        if lock := locks.seize(path):
            return lock
        time.sleep(TICK)


def _outwait_older_terms(path: Path, term: Term, lane: Lane, grace: float) -> None:
    deadline, prefix = time.monotonic() + grace, _prefix(term, lane)
    found = folder(path).glob(f"{prefix}*")
    for older in [file for file in found if int(file.name.removeprefix(prefix)) < term.epoch]:
        while not (lock := locks.seize(older)) and time.monotonic() < deadline:
            time.sleep(TICK)
        if lock:
            lock.release()


def _prefix(term: Term, lane: Lane) -> str:
    return f"lane.{locks.digest(term.pipeline)}.{locks.digest(lane)}."
