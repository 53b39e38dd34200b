"""The claim of the kinds of state that keep a row for each lane. A kind adds its locks and the registration of a claim."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.claim import LaneClaim
from penstock.coordinators.letter_table import LetterTable
from penstock.coordinators.letters import take
from penstock.coordinators.tables import Tables
from penstock.cursor import Watermark
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

TERM = "select 1 from {schema}terms t where t.pipeline = :pipeline and t.epoch = :epoch and t.seat is not null"
LANE = "w.pipeline = :pipeline and w.lane = :lane"
ATTEMPT = f"{LANE} and w.epoch = :epoch and w.attempt = :attempt"
_CURRENT = f"{ATTEMPT} and exists ({TERM})"
_STANDS = f"select 1 from {{schema}}watermarks w where {_CURRENT}"
_ADVANCE = f"""
update {{schema}}watermarks as w set
    cursor = case when :position >= position then :cursor else cursor end,
    position = case when :position >= position then :position else position end,
    delivered = coalesce(case when delivered > :delivered then delivered else :delivered end, delivered),
    total = total + :changes, rate = :rate, advanced_at = {{now}}, trouble = :trouble{{more}}
where {_CURRENT}
"""


class RowClaim(LaneClaim):
    """A lane under (epoch, attempt). `more`: further assignments of an advance."""

    letters_in: ClassVar[type[LetterTable]]
    more: ClassVar[str] = ""

    def __init__(self, store: Tables, term: Term, lane: Lane, attempt: int, register: str) -> None:
        super().__init__(term, lane, attempt)
        self._store = store
        self._mine: dict[str, object] = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "attempt": attempt}
        self._begin(next((Watermark(*mark) for mark in store.rows(register, **self._mine)), None))

    def secure(self) -> None:
        """Make all parked letters survive a loss of power."""
        with self._turn:
            self._store.flush()

    @property
    def _letters(self) -> LetterTable:
        return self.letters_in(self._store, self._term.pipeline)

    def _holds(self, rows: Collection[Row] | None) -> Sequence[Hold]:
        return self._letters.holds(rows)

    def _take(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        """Not flushed: a watermark that the same store records later does not survive without these letters."""
        with self._store.atomic(flushes=False):
            if not self._stays():
                raise self._lost()
            return take(step, self._letters.queued(), letters)

    def _stands(self) -> bool:
        return bool(self._store.rows(_STANDS.format(schema=self._store.schema), **self._mine))

    def _stays(self) -> bool:
        """Whether the claim is the current one until the transaction ends."""
        return self._stands()

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        """Progress and counts in one transaction."""
        if not (tally.dropped or tally.passed):
            return self._move(watermark, tally)
        with self._store.atomic(flushes=False):
            if stands := self._move(watermark, tally):
                self._letters.count(dropped=tally.dropped, passed=tally.passed)
        return stands

    def _move(self, watermark: Watermark, tally: Tally) -> bool:
        sql = _ADVANCE.format(schema=self._store.schema, now=self._store.now, more=self.more)
        counts = {"changes": tally.delivered, "rate": tally.rate}
        trouble = json.dumps(dict(tally.trouble)) if tally.trouble else None
        return self._store.write(sql, **asdict(watermark), **counts, trouble=trouble, **self._mine)
