"""The write half of a task: holds the lane, hands changes to the sink, and records progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from itertools import chain
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.change import NO_CHANGES, Change, Place, described, from_batch, last_place
from penstock.coordinator import Claim, Tally
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateUnavailable, TransformInvalid
from penstock.event import Delivered, LaneClaimed, LaneReleased
from penstock.failpoint import reach
from penstock.message import natives
from penstock.pipeline import Pipeline
from penstock.poison.condemned import IN_A_ROW, Circumstances
from penstock.poison.policy import policy
from penstock.progress.watermark import kept, later
from penstock.sink import Assignment, Delivery, TransactionalDelivery
from penstock.source import Stamp
from penstock.spark.bundles import encoding_of
from penstock.spark.calls import Calls, Refusal
from penstock.spark.death import Death
from penstock.spark.meter import Meter
from penstock.spark.outsize import refused
from penstock.spark.progress import Progress
from penstock.spark.rows import Aside, Mark, Raised
from penstock.spark.task_spec import TaskSpec
from penstock.spark.trouble import Trouble
from penstock.transform.function import Function, Outcome, Watch, origins, way_on
from penstock.transform.user_function import function_of

SETTLE_SECONDS = 0.2
TELL_SECONDS = 1.0


def deliver(spec: TaskSpec, batches: Iterable[pa.RecordBatch]) -> None:
    """Deliver the rows of an epoch or a batch."""
    task = TaskContext.get().taskAttemptId()
    with spec.reporting(task):
        _deliver(spec, task, batches)


def _deliver(spec: TaskSpec, task: int, batches: Iterable[pa.RecordBatch]) -> None:
    encoding = encoding_of(spec.pipeline.transform.has_sql)
    stream = (piece for batch in batches for piece in encoding.pieces(batch))
    first = next(stream, None)
    if not isinstance(first, Mark) or spec.is_stopped():
        return  # the reader ended before its first mark, and no change was read
    reach("writer.claiming")
    with spec.pipeline.state.claim(spec.term, first.lane, task) as claim:
        reach("writer.claimed")
        has_function = function_of(spec.pipeline) is not None
        with (
            closing(Calls(spec, first.lane, task)) if has_function else nullcontext() as calls,
            closing(LaneWriter(spec, task, first, claim, calls)) as writer,
        ):
            writer.carry(stream)


def _opened(
    spec: TaskSpec, opening: Mark, claim: Claim, assigned: Callable[[Watermark], Assignment]
) -> tuple[Delivery, Assignment, Watermark]:
    """The opened sink and the watermark after which it delivers.

    The copy of the sink is final once the sink is open, since no other process then delivers. It is also read before, because to
    open the sink again takes longer than to read the copy.
    """
    pipeline, recorded = spec.pipeline, claim.watermark
    reached = later(pipeline.source, recorded, kept(pipeline, opening.lane))
    while True:
        if reached is not recorded:
            claim.advance(reached, Tally())
            recorded = reached
        assignment = assigned(reached)
        delivery = pipeline.sink.open(assignment)
        reached = later(
            pipeline.source, recorded, cast(TransactionalDelivery, delivery).kept if pipeline.sink.keeps_watermark else None
        )
        if reached is recorded:
            return delivery, assignment, reached
        delivery.close()


class LaneWriter:
    """One attempt at delivering a lane."""

    def __init__(self, spec: TaskSpec, task: int, opening: Mark, claim: Claim, calls: Calls | None = None) -> None:
        self._spec, self._task, self._opening, self._claim = spec, task, opening, claim
        self._function, self._is_rewritten = function_of(spec.pipeline), False
        self._trouble = Trouble(spec.emit)
        self._tried_at = self._recorded_at = self._reported_at = time.monotonic()
        self._delivery, assignment, reached = _opened(spec, opening, claim, self._assigned)
        self._keeping = cast(TransactionalDelivery, self._delivery) if spec.pipeline.sink.keeps_watermark else None
        self._row_lease = assignment.row_lease
        self._since = self._row_lease.cursor(opening.cursor) if self._row_lease else opening.cursor
        self._calls = calls
        self._poison, self._raised_in_row = assignment.poison, 0
        self._failed_in_row = self._calls.in_row(reached.position) if self._calls else 0
        self._forget_deaths(reached)
        self._progress, self._meter = Progress(reached), Meter(self._poison)
        self._floor, self._is_whole = reached.position, True
        self._reached: Place | None = None
        claimed = LaneClaimed(
            pipeline=spec.pipeline.name, lane=opening.lane, epoch=spec.term.epoch, attempt=task, position=self._floor
        )
        spec.emit(claimed)

    def _assigned(self, reached: Watermark) -> Assignment:
        pipeline, epoch, lane = self._spec.pipeline, self._spec.term.epoch, self._opening.lane
        leases, incarnation = pipeline.source.row_lease, pipeline.source.incarnation(reached.cursor)
        about = Circumstances(pipeline.name, lane, incarnation, epoch, self._spec.emit_all)
        return Assignment(
            pipeline=pipeline.name,
            lane=lane,
            epoch=epoch,
            attempt=self._task,
            incarnation=incarnation,
            previous=reached.delivered,
            emit=self._trouble.on_event,
            poison=policy(pipeline.sink.retry, self._claim, about),
            has_messages=pipeline.source.gives_messages,
            row_lease=leases.open(Stamp(epoch, self._task)) if leases else None,
            is_current=self._is_current,
        )

    def _is_current(self) -> bool:
        return time.monotonic() - self._recorded_at <= self._spec.pipeline.state.ttl

    def carry(self, stream: Iterator[pa.RecordBatch | Mark | Raised | Aside]) -> None:
        """Hand all changes to the sink and wait until they are durable, or until a stop is requested."""
        for piece in stream:
            self._take(piece)
            if self._spec.is_stopped():
                break
        self._drain()
        for piece in stream:  # after a stop: with unread input Spark discards the worker
            if isinstance(piece, Aside):
                piece.done()

    def close(self) -> None:
        """Finish the requests under way, record progress, and report the release of the lane, also after a failure."""
        name, lane = self._spec.pipeline.name, self._opening.lane
        try:
            self._delivery.close()
            self._record()
        finally:
            self._spec.emit(LaneReleased(pipeline=name, lane=lane, position=self._progress.watermark.position))

    def _take(self, piece: pa.RecordBatch | Mark | Raised | Aside) -> None:
        if isinstance(piece, Mark):
            self._mark(piece.position, piece.cursor)
        elif isinstance(piece, Raised):
            self._spare(piece)
        elif isinstance(piece, Aside):
            self._park(piece)
        elif run := self._above_floor(piece):
            self._raised_in_row = 0
            self._hand(run) if self._function is None else self._call(self._function, run)
        self._tick()

    def _mark(self, position: int, cursor: Cursor) -> None:
        watermark = self._progress.mark(position, self._row_lease.cursor(cursor) if self._row_lease else cursor)
        if self._is_whole and self._keeping:
            self._keeping.mark(watermark)

    def _hand(self, changes: pa.RecordBatch) -> None:
        last = last_place(changes)
        self._progress.hand(last)
        self._meter.hand(changes)
        self._is_whole = False
        while not (is_taken := self._delivery.offer(changes, 0.05)) and not self._spec.is_stopped():
            self._tick()
        self._is_whole = is_taken  # otherwise later marks must not count

    def _spare(self, raised: Raised) -> None:
        """Park or drop a change on which an expression raised; raise after too many in a row: then the expression is wrong."""
        self._raised_in_row += 1
        error = _raised(self._spec.pipeline, raised)
        if self._raised_in_row > IN_A_ROW:
            self._drain()
            if not self._spec.is_stopped():
                raise error
        elif raised.change.position > self._floor:
            self._poison.condemn(raised.change, error, stage="sql")

    def _park(self, aside: Aside) -> None:
        """Park or drop a change that is too large at once, since several would fill the memory."""
        reach("writer.parking")
        try:
            change = aside.take()
            if change.position > self._floor:
                self._condemn_large(change)
            reach("writer.parked")
        finally:
            aside.done()

    def _condemn_large(self, change: Change) -> None:
        error = refused(change, self._spec.max_row)
        self._poison.condemn(change, error, stage="sql" if self._spec.pipeline.transform.has_sql else "function")
        self._poison.park()

    def _call(self, function: Function, run: pa.RecordBatch) -> None:
        """Hand over the results of the function for a run; a change on which a worker died is called alone.

        The function gets messages instead of the documents that expressions read.
        """
        assert self._calls
        pipeline = self._spec.pipeline
        has_documents = pipeline.transform.has_sql and pipeline.source.gives_messages
        for part, death in chain.from_iterable(map(self._calls.parts, natives(run) if has_documents else (run,))):
            if not death:
                self._apply(function, part, self._calls)
            elif self._is_settled():
                self._again(function, part, death, self._calls)
            if self._spec.is_stopped():
                return

    def _again(self, function: Function, part: pa.RecordBatch, death: Death, calls: Calls) -> None:
        """Call the function for a change on which a worker died, or condemn the change if its tries are spent."""
        [change] = from_batch(part)
        if error := calls.meet(change):
            self._apply(function, part, Refusal(error), death.tries)
        else:
            self._record()
            self._apply(function, part, calls)
            calls.survive(change)
        if self._is_settled():
            calls.settle(self._failed_in_row, self._progress.watermark.position)

    def _is_settled(self) -> bool:
        """Wait until all changes handed over are durable and recorded; False if a stop is requested."""
        self._drain()
        while not self._spec.is_stopped():
            if self._record():
                return True
            time.sleep(SETTLE_SECONDS)
        return False

    def _apply(self, function: Function, run: pa.RecordBatch, watch: Watch, tries: int = 1) -> None:
        """Hand over the results of the function for a run; a change on which it raises is poison."""
        outcome = function.apply(run, 0 if self._poison.then == "halt" else IN_A_ROW, self._failed_in_row, watch)
        self._failed_in_row = outcome.in_row
        for change, error in outcome.failures:
            self._poison.condemn(change, error, tries, stage="function")
        self._hand_made(self._without_followers(run, outcome))
        if outcome.error:
            self._drain()
            if not self._spec.is_stopped():
                raise outcome.error

    def _without_followers(self, run: pa.RecordBatch, outcome: Outcome) -> Outcome:
        """The outcome without changes that wait for a letter of their original row: the sink checks only their new table."""
        if not outcome.is_rewritten or not self._poison.has_letters:
            return outcome
        made_of = origins(run, outcome.changes)
        tables = outcome.changes.column("table").to_pylist()
        moved = {origin.place: origin for origin, table in zip(made_of, tables, strict=True) if origin.table != table}
        waiting = self._poison.keep_back(list(moved.values()), "function")
        goes = pa.array([origin.place not in waiting for origin in made_of], pa.bool_())
        return outcome._replace(changes=outcome.changes.filter(goes))

    def _hand_made(self, outcome: Outcome) -> None:
        """Hand over changes of a function, with a mark after them, since they prove no position of the source."""
        self._is_rewritten = self._is_rewritten or outcome.is_rewritten
        if outcome.changes.num_rows:
            self._hand(outcome.changes)
        if outcome.last and outcome.last.ordinal is None:
            self._mark(outcome.last.position, self._behind(outcome.last))

    def _drain(self) -> None:
        while not self._spec.is_stopped() and not self._delivery.drain(0.05):
            self._tick()

    def _above_floor(self, run: pa.RecordBatch) -> pa.RecordBatch | None:
        """The changes of a run that the predecessor did not record after the reader of this attempt began; None without any."""
        positions = run.column("position")
        if positions[0].as_py() <= self._floor:
            run = run.filter(pc.greater(positions, self._floor))
        return run if run.num_rows else None

    def _tick(self) -> None:
        if time.monotonic() - self._tried_at >= SETTLE_SECONDS:
            self._record()
            self._delivery.offer(NO_CHANGES, 0.0)  # raises a failure, also if no changes come

    def _record(self) -> bool:
        """Record progress, and return whether it is recorded.

        An outage of the store that is shorter than a term only causes repeats after a crash.
        """
        reach("writer.advancing")
        self._tried_at = now = time.monotonic()
        watermark = self._durable()
        trouble = self._trouble.look(self._reached, self._progress.handed)
        if self._calls:
            trouble = trouble or self._calls.trouble_after(watermark.position)
        tally = self._meter.tally(watermark.position, trouble)
        try:
            self._poison.park()
            self._claim.advance(watermark, tally)
        except StateUnavailable:
            if now - self._recorded_at > self._spec.pipeline.state.ttl:
                raise
            return False
        self._recorded_at = now
        self._meter.recorded()
        self._forget_deaths(watermark)
        reach("writer.advanced")
        self._emit_progress(watermark, now)
        return True

    def _forget_deaths(self, recorded: Watermark) -> None:
        if self._calls:
            self._calls.forget(recorded.position)

    def _durable(self) -> Watermark:
        change = self._delivery.delivered()
        if change is None:
            return self._progress.durable(None, None)
        self._reached = change.place
        self._meter.reach(change.place)
        return self._progress.durable(change, None if self._is_rewritten else self._behind(change))

    def _behind(self, change: Change) -> Cursor:
        return self._spec.pipeline.source.cursor_after(change, self._since)

    def _emit_progress(self, watermark: Watermark, now: float) -> None:
        if now - self._reported_at >= TELL_SECONDS:
            changes = self._meter.report(now - self._reported_at)
            self._reported_at = now
            if changes:
                told = Delivered(
                    pipeline=self._spec.pipeline.name, lane=self._opening.lane, changes=changes, position=watermark.position
                )
                self._spec.emit(told)


def _raised(pipeline: Pipeline, raised: Raised) -> TransformInvalid:
    """The error without the message of Spark, which TryEval drops; a redrive shows it."""
    transform, part = pipeline.transform, raised.part
    expression = transform.where if part == "where" else f"one of {', '.join(transform.select or ())}"
    return TransformInvalid(
        f"transform.{part}: {expression} raised on {described(raised.change)}",
        f"use a form that gives NULL; {way_on(raised.change)}",
    )
