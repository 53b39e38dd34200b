"""The coordinator of the kinds of state with tables. A kind adds the access to its store and the presence of holders."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar

from penstock.change import Lane
from penstock.coordinator import PipelineState, Term
from penstock.coordinators.holder import ended
from penstock.coordinators.letter_table import LetterTable
from penstock.coordinators.letters import StoreLetters, alter
from penstock.coordinators.row_claim import TERM
from penstock.coordinators.tables import Tables
from penstock.cursor import Watermark
from penstock.letter import DeadLetter

# A claim of an older term is deposed with it, so that the claim cannot move a placed watermark.
PLACE = """
insert into {schema}watermarks as w (pipeline, lane, cursor, position, delivered, epoch, attempt)
values (:pipeline, :lane, :cursor, :position, :delivered, :epoch, -1)
on conflict (pipeline, lane) do update set
    cursor = excluded.cursor, position = excluded.position, delivered = excluded.delivered, epoch = excluded.epoch,
    attempt = case when w.epoch = excluded.epoch then w.attempt else -1 end
"""
_SUMS = "cast(coalesce(sum(total), 0) as bigint), coalesce(sum(rate), 0.0), max(advanced_at), max(trouble)"

S = TypeVar("S", bound=Tables)


@dataclass(frozen=True, kw_only=True)
class RowCoordinator(StoreLetters, Generic[S]):
    """Terms, watermarks and letters in tables. `locking`: the words that lock the row of a term for a transaction.

    `grace`: seconds that a claim waits for processes of older terms; a stopped process keeps its lock for ever.
    """

    letters_in: ClassVar[type[LetterTable]]
    locking: ClassVar[str] = ""
    ttl: float = 5.0
    grace: float = 1.0
    clock: Callable[[], float] = time.monotonic

    @property
    def renewal(self) -> float:
        """A fifth of a term."""
        return self.ttl / 5

    @abstractmethod
    def _reading(self) -> AbstractContextManager[S | None]:
        """The store; None if there is none yet."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[S]:
        """The store in a transaction that survives a loss of power."""

    @abstractmethod
    def _term(self, store: S, pipeline: str) -> dict[str, Any]:
        """Epoch, holder, error and presence, as the fields of a pipeline's state."""

    def identity(self) -> str | None:
        """The random id of this store; None before there is one."""
        with self._reading() as store:
            return str(store.rows(f"select identity from {store.schema}about")[0][0]) if store else None

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """The watermark of a lane, which survives a loss of power; None for a new pipeline."""
        with self._reading() as store:
            if not store:
                return None
            found = _watermarks(store, pipeline).get(lane)
            store.flush()
            return found

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of lanes in one step, also backwards, and drop lanes that these replace. Raises TermLost."""
        with self._under(term) as store:
            for lane, mark in marks.items():
                sql = PLACE.format(schema=store.schema)
                store.write(sql, pipeline=term.pipeline, lane=lane, epoch=term.epoch, **asdict(mark))
            delete = f"delete from {store.schema}watermarks where pipeline = :pipeline and lane = :lane returning total"
            gone = [store.rows(delete, pipeline=term.pipeline, lane=lane) for lane in instead_of if lane not in marks]
            add = f"update {store.schema}watermarks set total = total + :more where pipeline = :pipeline and lane = :lane"
            more = sum(total for rows in gone for (total,) in rows)
            store.write(add, pipeline=term.pipeline, lane=next(iter(marks)), more=more)

    def forget(self, term: Term) -> None:
        """Remove all watermarks and letters of a pipeline. Raises TermLost."""
        with self._under(term) as store:
            store.write(f"update {store.schema}terms set error = null where pipeline = :pipeline", pipeline=term.pipeline)
            store.write(f"delete from {store.schema}watermarks where pipeline = :pipeline", pipeline=term.pipeline)
            self.letters_in(store, term.pipeline).queued().clear()

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error with which this pipeline stopped. Raises TermLost."""
        with self._under(term) as store:
            sql = f"update {store.schema}terms set error = :error where pipeline = :pipeline"
            store.write(sql, error=json.dumps(dict(error)), pipeline=term.pipeline)

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record an error that is tried again. Raises TermLost."""
        with self._under(term) as store:
            sql = f"update {store.schema}watermarks set trouble = :trouble where pipeline = :pipeline"
            store.write(sql, trouble=json.dumps(dict(trouble)), pipeline=term.pipeline)

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """The state of a pipeline."""
        with self._reading() as store:
            if not store:
                return PipelineState()
            sql = f"select {_SUMS} from {store.schema}watermarks where pipeline = :pipeline"
            [(delivered, rate, at, trouble)] = store.rows(sql, pipeline=pipeline)
            progress = {
                "watermarks": _watermarks(store, pipeline),
                "advanced_at": datetime.fromtimestamp(at, UTC) if isinstance(at, float) else at,
                "delivered": delivered,
                "rate": rate,
                "trouble": json.loads(trouble) if trouble else None,
                **self.letters_in(store, pipeline).summary(),
            }
            return PipelineState(**progress | self._term(store, pipeline))

    def _parked(self, pipeline: str) -> Sequence[DeadLetter]:
        with self._reading() as store:
            return self.letters_in(store, pipeline).all() if store else []

    def _alter(self, step: str, number: int | None, **asked: bool) -> bool:
        with self._writing() as store:
            found = store.rows(self.letters_in.sql["pipeline"], number=number)
            return any(alter(step, self.letters_in(store, pipeline).queued(), number, **asked) for (pipeline,) in found)

    @contextmanager
    def _under(self, term: Term) -> Iterator[S]:
        """Writes that only the holder of a term may do, all or none; no other process takes the term meanwhile."""
        with self._writing() as store:
            sql = TERM.format(schema=store.schema) + self.locking
            if store.is_new or not store.rows(sql, pipeline=term.pipeline, epoch=term.epoch):
                raise ended(term)
            yield store


def _watermarks(store: Tables, pipeline: str) -> dict[Lane, Watermark]:
    sql = f"select lane, cursor, position, delivered from {store.schema}watermarks where pipeline = :pipeline"
    return {Lane(lane): Watermark(*mark) for lane, *mark in store.rows(sql, pipeline=pipeline)}
