"""One pipeline in this process: it campaigns, leads and settles, and stops on errors, on request, and at the end of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag

from penstock.change import Lane
from penstock.coordinator import PipelineState, Term
from penstock.errors import Directive, EngineFailed, EngineLost, PenstockError, StateRefused, StateUnavailable, TermLost, from_text
from penstock.event import (
    CallDied,
    CatchingUp,
    Completed,
    Event,
    Halted,
    LaneClaimed,
    LaneReleased,
    Led,
    Observer,
    Restarted,
    StandingBy,
    Stopped,
    Warned,
)
from penstock.ownership import refusal
from penstock.pipeline import Pipeline
from penstock.progress.backfill import Backfill, outstanding
from penstock.progress.batch_target import Batch, Target, catch_up
from penstock.retry import Retry
from penstock.running.lanes import have_changed, open_lanes
from penstock.running.leadership import Absence, Leadership, gone, holder_name
from penstock.running.resume import appear, place
from penstock.running.settling import Settling
from penstock.spark.engine import Engine
from penstock.spark.query import Query
from penstock.status import position_of

LOOK_SECONDS = 0.4
SETTLE_SECONDS = 1.0
STOP_SECONDS = 15.0
"""Seconds that a stop waits for requests under way."""
LOST_SECONDS = 1.0
"""The same when the term is lost: no progress can be recorded any more."""

_WORKER_DIED = "worker exited unexpectedly"  # Spark's words

_RESTARTS = Retry(tries="forever")


class PipelineRun:
    """One pipeline in this process."""

    def __init__(self, pipeline: Pipeline, start: str | None, stop: Flag, emit: Observer) -> None:
        self.pipeline = pipeline
        self.error: PenstockError | None = None
        self._start, self._stop, self._emit = start, stop, emit
        self._claims: set[str] = set()
        self._died: CallDied | None = None
        self._settling, self._entered = Settling(pipeline, emit), PipelineState()
        self._has_entered = False
        self._absence = Absence(pipeline.name, emit)
        self._is_placed = False
        self._ready: Query | None = None
        self._ready_lanes = frozenset[Lane]()
        self._batch = Batch(pipeline) if pipeline.mode == "batch" else None
        self._leadership = Leadership(pipeline.state, pipeline.name, holder_name(), asks=start is not None)

    def on_event(self, event: Event) -> None:
        """Note the lanes that workers hold, and calls that ended a worker."""
        if isinstance(event, LaneClaimed) and event.pipeline == self.pipeline.name:
            self._claims.add(event.lane)
            self._died = None
        elif isinstance(event, LaneReleased) and event.pipeline == self.pipeline.name:
            self._claims.discard(event.lane)
        elif isinstance(event, CallDied) and event.pipeline == self.pipeline.name:
            self._died = event

    def has_nothing_to_do(self) -> bool:
        """Whether this is an empty batch, found without Spark; a halted pipeline must try again."""
        with suppress(PenstockError):  # `run` meets the error again
            if self._is_done() and not self.pipeline.state.pipeline_state(self.pipeline.name).error:
                self._emit(Completed(pipeline=self.pipeline.name, position=self._position()))
                return True
        return False

    def is_refused(self) -> bool:
        """Whether its registration belongs to another state, found without Spark; `place` checks it again, under the term."""
        if error := refusal(self.pipeline) if self._has_entered else None:
            self._halted(error)
        return error is not None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the store; `run` waits for an unavailable store. Raises the error of a store that refuses this process."""
        try:
            self._enter()
        except PenstockError as error:
            self._halted(error)
            raise
        try:
            yield
        finally:
            self._leadership.leave()

    def _enter(self) -> None:
        try:
            self._entered = self.pipeline.state.pipeline_state(self.pipeline.name)
            self._leadership.enter()
        except StateRefused:
            raise
        except StateUnavailable as error:
            self._absence.look(error)
        else:
            self._absence.look(None)
            self._has_entered = True

    def _stand(self, engine: Engine) -> None:
        """Begin to campaign, as soon as the store is available."""
        while not self._has_entered and not self._stop.wait(LOOK_SECONDS):
            if lost := engine.lost():
                raise lost
            self._enter()
        if self._has_entered and not self._stop.is_set():
            self._leadership.start()

    def run(self, engine: Engine) -> None:
        """Campaign and lead, until a request to stop, the end of a batch, or an error."""
        try:
            self._stand(engine)
            while term := self._await_term(engine):
                self._emit(Led(pipeline=self.pipeline.name, epoch=term.epoch, holder=term.holder))
                self._lead(engine, term)
                if self._is_done():
                    break
            if self._is_done():
                self._emit(Completed(pipeline=self.pipeline.name, position=self._position()))
        except PenstockError as error:
            self._halted(error)
        except Exception as error:  # the entry of a thread: every error is reported
            self._halted(EngineFailed(f"{type(error).__name__}: {error}"))
            raise
        finally:
            self._leadership.leave()
            self._dismiss()

    def _halted(self, error: PenstockError) -> None:
        self.error = error
        self._emit(Halted(pipeline=self.pipeline.name, **error.facts()))

    def _await_term(self, engine: Engine) -> Term | None:
        """The next term; None on a request to stop, or when a batch is done. A standby waits with its query prepared."""
        is_standby = False
        while not self._stop.is_set():
            if term := self._leadership.await_term(LOOK_SECONDS):
                self._absence.look(None)
                return term
            if self._is_done_by_another():
                return None
            if lost := engine.lost():
                raise lost
            self._absence.look(trouble := self._leadership.trouble)
            if not is_standby and not trouble:
                self._make_ready(engine)
                self._emit(StandingBy(pipeline=self.pipeline.name, holder=self._standing().holder or "no process"))
                is_standby = True
        return None

    def _make_ready(self, engine: Engine) -> None:
        """Prepare a query that waits for the term: Spark takes a second to start one."""
        try:
            engine.warm(self._is_called)
            if self._batch is None and self._ready is None and not self._is_called():
                self._ready_lanes = open_lanes(self.pipeline)
                self._ready = engine.query(self.pipeline, None, self._ready_lanes)
                self._ready.prepare(self._is_called)
        except PenstockError as error:
            if error.directive is Directive.HALT or isinstance(error, EngineLost):
                raise
            with suppress(EngineFailed):
                self._dismiss()  # the error may pass: the leader tries again

    def _is_called(self) -> bool:
        return self._leadership.is_held() or self._stop.is_set()

    def _dismiss(self) -> None:
        """End the prepared query, if there is one."""
        ready, self._ready = self._ready, None
        if ready:
            ready.stop()

    def _query(self, engine: Engine, target: Target | Backfill | None, lanes: frozenset[Lane]) -> Query:
        """The prepared query, or another if it has a target or other lanes."""
        if target is not None or lanes != self._ready_lanes:
            self._dismiss()
        ready, self._ready = self._ready, None
        return ready or engine.query(self.pipeline, target, lanes)

    def _lead(self, engine: Engine, term: Term) -> None:
        """Run the pipeline during a term, and start again after errors that may pass."""
        self._is_placed, failures = False, 0
        try:
            while not self._stop.is_set() and not self._leadership.is_lost() and not (self._is_placed and self._is_done()):
                failures = self._carry(engine, term, failures)
        except PenstockError as error:
            if error.directive is not Directive.HALT or not self._is_deposed(term, error):
                raise
        if self._leadership.is_lost():
            self._emit(gone(term, self._leadership.loss))
            self._leadership.let_go()
        elif not self._is_done():
            self._emit(Stopped(pipeline=self.pipeline.name, position=self._position()))

    def _is_deposed(self, term: Term, error: PenstockError) -> bool:
        """Record the error that halts it. True if another process leads already: then the error only shows the loss of the term."""
        try:
            self.pipeline.state.halt(term, error.facts())
        except TermLost:
            while not self._leadership.is_lost() and not self._stop.wait(LOOK_SECONDS):
                continue
            return True
        except StateUnavailable:
            pass  # an event reports the error anyway
        return False

    def _carry(self, engine: Engine, term: Term, failures: int) -> int:
        """Run one query to its end; returns the number of failures in a row."""
        began = time.monotonic()
        try:
            self._run_query(engine, term)
        except PenstockError as error:
            if error.directive is Directive.HALT or isinstance(error, EngineLost):
                raise
            error = self._named(error)
            failures = failures + 1 if time.monotonic() - began < 60 else 1
            wait = _RESTARTS.wait(failures, chance=0.0)
            self._emit(Restarted(pipeline=self.pipeline.name, code=error.code, message=error.message, wait_seconds=wait))
            with suppress(StateUnavailable, TermLost):  # `leadership` reports both
                self.pipeline.state.note(term, error.facts())
            self._stop.wait(wait)
        return failures

    def _named(self, error: PenstockError) -> PenstockError:
        """The error, with the change that ended the worker: Spark reports only that a worker has ended."""
        if self._died and _WORKER_DIED in error.message:
            return EngineFailed(self._died.message, "correct the function: the change is tried again")
        return error

    def _place(self, term: Term) -> None:
        """Place the lanes. `--from` applies to the error that had halted the pipeline, unless another process has led since."""
        is_next = self._leadership.epoch_before == self._entered.epoch
        unheeded = place(self.pipeline, term, self._start, self._entered.error if is_next else None)
        self._is_placed = True
        if unheeded is not None:
            reason = f"--from {self._start} has no effect, because the pipeline has a watermark, at position {unheeded}"
            self._emit(
                Warned(pipeline=self.pipeline.name, reason=f"{reason}; to move it, stop the pipeline and use penstock rewind")
            )

    def _run_query(self, engine: Engine, term: Term) -> None:
        lanes = open_lanes(self.pipeline)
        if self._is_placed:
            appear(self.pipeline, term)
        else:
            self._place(term)
        rows = outstanding(self.pipeline, term)
        target = rows or self._target()
        if target is None and not lanes:
            self._settling.settle()
            self._stop.wait(SETTLE_SECONDS)  # until another lane appears
            return
        query = self._query(engine, target, lanes)
        try:
            query.start(term)
            self._watch(query, None if target else lanes)
            has_ended = query.has_ended()
        finally:
            self._end(query)
        if has_ended and self._batch and not rows:
            self._finish()

    def _target(self) -> Target | None:
        """The end of the next query; a live query has none, unless its backlog is large."""
        if self._batch:
            return self._batch.target()
        if target := catch_up(self.pipeline):
            self._emit(CatchingUp(pipeline=self.pipeline.name, position=self._position()))
        return target

    def _watch(self, query: Query, lanes: frozenset[Lane] | None) -> None:
        """Wait for a request to stop, the loss of the term, the end of a batch, or other lanes. Raises the error of the query."""
        settle_at = time.monotonic() + SETTLE_SECONDS
        while not query.has_ended() and not self._stop.wait(LOOK_SECONDS) and not self._leadership.is_lost():
            self._absence.look(self._leadership.trouble)
            if failure := query.failure():
                raise failure
            if query.was_stopped_inside():
                raise self._recorded_error()
            if time.monotonic() >= settle_at:
                self._settling.settle()
                settle_at = time.monotonic() + SETTLE_SECONDS
                if lanes is not None and have_changed(self.pipeline, lanes):
                    return
        if query.has_ended() and query.was_stopped_inside():
            raise self._recorded_error()

    def _finish(self) -> None:
        """After a batch: check that all of it was recorded, and settle it in the source, because no process settles it later."""
        if not self._is_done():
            raise EngineFailed("Spark ended the batch before everything was delivered")
        while self._settling.settle(patience=0.0) and not self._stop.is_set() and not self._leadership.is_lost():
            continue

    def _is_done(self) -> bool:
        return self._batch is not None and self._batch.is_done()

    def _is_done_by_another(self) -> bool:
        """Whether the leader has delivered all changes of this batch."""
        return self._batch is not None and self._standing().is_held and self._batch.is_done()

    def _end(self, query: Query) -> None:
        """Wait for requests under way, until no worker holds a lane; then end the query."""
        query.ask_to_stop()
        deadline = time.monotonic() + (LOST_SECONDS if self._leadership.is_lost() else STOP_SECONDS)
        while self._claims and time.monotonic() < deadline and not query.failure():
            time.sleep(LOOK_SECONDS / 10)
        query.stop()
        self._claims.clear()

    def _recorded_error(self) -> PenstockError:
        facts = self.pipeline.state.pipeline_state(self.pipeline.name).error
        if not facts:
            return EngineFailed("workers stopped without an error")
        return from_text(f"[{facts['code']}] {facts['message']} | {facts['remedy']}") or PenstockError(facts["message"])

    def _standing(self) -> PipelineState:
        """The state of the pipeline; an empty one while the store cannot be read."""
        with suppress(StateUnavailable):
            return self.pipeline.state.pipeline_state(self.pipeline.name)
        return PipelineState()

    def _position(self) -> int | None:
        return position_of(self.pipeline, self._standing())
