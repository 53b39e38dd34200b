"""The coordinator in Postgres. `DESIGN.md` in the folder above says why it is safe."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from penstock.change import Lane
from penstock.coordinator import PipelineState, Term
from penstock.coordinators.held_term import ended
from penstock.coordinators.letters import StoreLetters, alter
from penstock.coordinators.postgres import address, presence
from penstock.coordinators.postgres.candidate import PostgresCandidate
from penstock.coordinators.postgres.claim import PostgresClaim, claimed
from penstock.coordinators.postgres.idle import borrowed
from penstock.coordinators.postgres.letters import PostgresLetters
from penstock.coordinators.postgres.numbers import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store
from penstock.cursor import Cursor, Watermark
from penstock.dsn import shown
from penstock.errors import StateUnavailable
from penstock.letter import DeadLetter

_HOLD = f"select 1 from {NAME}.terms where pipeline = %(pipeline)s and epoch = %(epoch)s and seat is not null for update"

# A claim of an older term is deposed with it, so that it cannot move what was placed.
PLACE = f"""
insert into {NAME}.watermarks as w (pipeline, lane, cursor, position, delivered, epoch, attempt)
values (%(pipeline)s, %(lane)s, %(cursor)s, %(position)s, %(delivered)s, %(epoch)s, -1)
on conflict (pipeline, lane) do update set
    cursor = excluded.cursor, position = excluded.position, delivered = excluded.delivered, epoch = excluded.epoch,
    attempt = case when w.epoch = excluded.epoch then w.attempt else -1 end
"""
_GONE = "pipeline = %(pipeline)s and lane = any(%(gone)s)"
_TAKE_OVER = f"""
update {NAME}.watermarks set total = total + (select coalesce(sum(total), 0) from {NAME}.watermarks where {_GONE})
where pipeline = %(pipeline)s and lane = %(lane)s
"""
_TERM = f"select epoch, holder, coalesce({presence.ALIVE}, false), error from {NAME}.terms where pipeline = %(pipeline)s"
_MARKS = f"select lane, cursor, position, delivered from {NAME}.watermarks where pipeline = %(pipeline)s"
_SUMS = f"""
select coalesce(sum(total), 0)::bigint, coalesce(sum(rate), 0.0), max(advanced_at), max(trouble) from {NAME}.watermarks
where pipeline = %(pipeline)s
"""


@dataclass(frozen=True)
class PostgresCoordinator(StoreLetters):
    """Terms and watermarks in a Postgres database; processes of any machine share it.

    `grace` is how many seconds a claim waits for processes of older terms: one that was stopped would keep its lock for ever.
    """

    dsn: str = field(repr=False)
    ttl: float = 5.0
    grace: float = 1.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        address.patience(self.dsn)  # what cannot be understood is told at once

    @property
    def address(self) -> str:
        """The database, without secrets."""
        return shown(self.dsn)

    def examine(self) -> None:
        """Raise what would keep a pipeline from using it; nothing is changed."""
        with borrowed(self.dsn) as store:
            store.examine()

    def identity(self) -> str | None:
        """The random id of this schema; None before there is one."""
        with borrowed(self.dsn) as store:
            return None if store.is_new else str(store.rows(f"select identity from {NAME}.about")[0][0])

    def candidate(self, pipeline: str, holder: str) -> PostgresCandidate:
        """Stand for a pipeline; makes the tables if there are none."""
        return PostgresCandidate(self.dsn, pipeline, holder, self.ttl, self.clock)

    @contextmanager
    def claim(self, term: Term, lane: Lane, attempt: int) -> Iterator[PostgresClaim]:
        """Hold a lane; blocks while a predecessor of this term still does."""
        with claimed(self.dsn, term, lane, attempt, self.grace) as claim:
            yield claim

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """How far this lane has been delivered; None for a new pipeline."""
        with borrowed(self.dsn) as store:
            return _watermarks(store, pipeline).get(lane)

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of lanes in one step, also backwards, and drop lanes that these replace. Raises TermLost."""
        gone = {"pipeline": term.pipeline, "gone": [lane for lane in instead_of if lane not in marks]}
        with self._under(term) as store:
            for lane, mark in marks.items():
                facts = {"cursor": mark.cursor, "position": mark.position, "delivered": mark.delivered}
                store.write(PLACE, pipeline=term.pipeline, lane=lane, epoch=term.epoch, **facts)
            store.write(_TAKE_OVER, lane=next(iter(marks)), **gone)
            store.write(f"delete from {NAME}.watermarks where {_GONE}", **gone)

    def forget(self, term: Term) -> None:
        """Remove all watermarks and letters of a pipeline. Raises TermLost."""
        with self._under(term) as store:
            store.write(f"update {NAME}.terms set error = null where pipeline = %(pipeline)s", pipeline=term.pipeline)
            store.write(f"delete from {NAME}.watermarks where pipeline = %(pipeline)s", pipeline=term.pipeline)
            PostgresLetters(store, term.pipeline).queued().clear()

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error this pipeline stopped with."""
        sql = f"update {NAME}.terms set error = %(error)s where pipeline = %(pipeline)s"
        with self._under(term) as store:
            store.write(sql, error=json.dumps(dict(error)), pipeline=term.pipeline)

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record what fails and is tried again. Raises TermLost."""
        sql = f"update {NAME}.watermarks set trouble = %(trouble)s where pipeline = %(pipeline)s"
        with self._under(term) as store:
            store.write(sql, trouble=json.dumps(dict(trouble)), pipeline=term.pipeline)

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """What is known of a pipeline."""
        with borrowed(self.dsn) as store:
            return PipelineState() if store.is_new else _standing(store, pipeline)

    def _parked(self, pipeline: str) -> Sequence[DeadLetter]:
        with borrowed(self.dsn) as store:
            return [] if store.is_new else PostgresLetters(store, pipeline).all()

    @contextmanager
    def _sole(self, pipeline: str) -> Iterator[bool]:
        with borrowed(self.dsn) as store:
            [(is_sole,)] = store.rows("select pg_try_advisory_lock(%(lock)s)", lock=number_of("redrive", pipeline))
            try:
                yield is_sole
            finally:
                with suppress(StateUnavailable):  # then the session has ended, and the lock with it
                    store.rows("select pg_advisory_unlock_all()")

    def _alter(self, step: str, number: int | None, **asked: bool) -> bool:
        with borrowed(self.dsn) as store, store.atomic():
            storage = PostgresLetters.of(store, number)
            return bool(storage and alter(step, storage.queued(), number, **asked))

    @contextmanager
    def _under(self, term: Term) -> Iterator[Store]:
        """Writes that only the holder of a term may do, all or none; nobody takes the term meanwhile."""
        with borrowed(self.dsn) as store, store.atomic():
            if store.is_new or not store.rows(_HOLD, pipeline=term.pipeline, epoch=term.epoch):
                raise ended(term)
            yield store


def _standing(store: Store, pipeline: str) -> PipelineState:
    terms = store.rows(_TERM, pipeline=pipeline)
    epoch, holder, is_held, error = terms[0] if terms else (0, None, False, None)
    delivered, rate, advanced_at, trouble = store.rows(_SUMS, pipeline=pipeline)[0]
    return PipelineState(
        epoch=epoch,
        holder=holder,
        is_held=is_held,
        standbys=len(presence.standbys(store, pipeline)),
        watermarks=_watermarks(store, pipeline),
        advanced_at=advanced_at,
        delivered=delivered,
        rate=rate,
        error=json.loads(error) if error else None,
        trouble=json.loads(trouble) if trouble else None,
        **PostgresLetters(store, pipeline).summary(),
    )


def _watermarks(store: Store, pipeline: str) -> dict[Lane, Watermark]:
    rows = [] if store.is_new else store.rows(_MARKS, pipeline=pipeline)
    return {Lane(lane): Watermark(Cursor(cursor), position, delivered) for lane, cursor, position, delivered in rows}
