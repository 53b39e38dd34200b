"""Send dead letters again, during a run of the pipeline: through the stages not passed, those of one key in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from penstock.change import Change, to_batch
from penstock.coordinator import PipelineState
from penstock.errors import DeliveryExhausted, PenstockError
from penstock.letter import DeadLetter, ordered
from penstock.message import natives
from penstock.pipeline import Pipeline
from penstock.poison.condemned import IN_A_ROW
from penstock.rows import Row, touching
from penstock.sink import Assignment
from penstock.source import Source
from penstock.transform.user_function import function_of

PATIENCE = 300.0
"""Seconds that the delivery of one letter may take."""

REACH_SECONDS, LOOK_SECONDS = 10.0, 0.1
"""Limit and interval of the wait for a running pipeline to deliver the changes before a letter."""

Outcome = Literal["sent", "left out", "failed", "waits", "early", "overtaken"]
"""Sent; left out by the current transform; failed again; waits for a failed letter, or for the pipeline; needs `force`."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """The outcome of a letter."""

    letter: DeadLetter
    outcome: Outcome
    error: PenstockError | None = None


def chains(letters: Sequence[DeadLetter], chosen: Callable[[DeadLetter], bool], bound: Collection[Row] = ()) -> list[DeadLetter]:
    """The chosen letters with all that share rows with them, or with the `bound` rows, in the order of sending."""
    rows = {*bound, *(row for letter in letters if chosen(letter) for row in letter.rows)}
    while grown := {row for letter in filter(_touching(rows), letters) for row in letter.rows} - rows:
        rows |= grown
    is_bound = _touching(rows)
    return [letter for letter in ordered(letters) if chosen(letter) or is_bound(letter)]


def redrive(pipeline: Pipeline, chosen: Callable[[DeadLetter], bool], force: bool = False) -> Iterator[Redriven]:
    """Send letters again, and yield each outcome; also letters that are parked after them in the meantime.

    Stops after too many consecutive failures. Raises TermHeld if another process sends letters.
    """
    with pipeline.state.redriving(pipeline.name), ExitStack() as stage:
        sending = Sending(pipeline, stage)
        done: set[int | None] = set()
        rows: set[Row] = set()
        while some := [one for one in chains(pipeline.state.letters(pipeline.name), chosen, rows) if one.number not in done]:
            rows.update(row for letter in some for row in letter.rows)
            done.update(letter.number for letter in some)
            for letter in some:
                yield sending.send(letter, force)
                if sending.failed_in_row >= IN_A_ROW:
                    return


def _touching(rows: Collection[Row]) -> Callable[[DeadLetter], bool]:
    is_bound = touching(rows)
    return lambda letter: is_bound(letter.rows)


class Sending:
    """One redrive: its consecutive failures, and the rows that wait for failed letters."""

    def __init__(self, pipeline: Pipeline, stage: ExitStack) -> None:
        self._pipeline, self._stage, self.failed_in_row = pipeline, stage, 0
        self._blocked: set[Row] = set()
        self._patience = REACH_SECONDS
        self._expressions: Callable[[Change], pa.RecordBatch] | None = None

    def send(self, letter: DeadLetter, force: bool) -> Redriven:
        """Send a letter, unless it waits for a failed one."""
        state = self._pipeline.state
        if _touching(self._blocked)(letter):
            return Redriven(letter, "waits")
        if not force and not self._is_reached(letter):
            self._blocked.update(letter.rows)
            return Redriven(letter, "early")
        if not state.hold(letter, force=force):
            return Redriven(letter, "overtaken")
        try:
            changes = self._transformed(letter)
            if changes.num_rows:
                self._deliver(letter, changes)
        except PenstockError as error:
            self.failed_in_row += 1
            self._blocked.update(letter.rows)
            return Redriven(letter, "failed", error)
        self.failed_in_row = 0
        state.remove(letter, redriven=True)
        return Redriven(letter, "sent" if changes.num_rows else "left out")

    def _is_reached(self, letter: DeadLetter) -> bool:
        """Whether all changes before a letter are delivered or parked: earlier changes of its rows may be under way."""
        deadline = time.monotonic() + self._patience
        while _lies_ahead(letter, standing := self._pipeline.state.pipeline_state(self._pipeline.name), self._pipeline.source):
            if not standing.is_held or time.monotonic() >= deadline:
                self._patience = 0.0  # later letters do not wait again
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _transformed(self, letter: DeadLetter) -> pa.RecordBatch:
        """The results of a letter after the stages that it had not passed, as configured now."""
        given = self._put_through(letter.change) if letter.stage == "sql" else to_batch([letter.change])
        if self._pipeline.source.gives_messages:
            given = next(natives(given), given)
        if letter.stage == "sink" or not given.num_rows or not (function := function_of(self._pipeline)):
            return given
        outcome = function.apply(given)
        if outcome.error:
            raise outcome.error
        return outcome.changes

    def _put_through(self, change: Change) -> pa.RecordBatch:
        """The result of the expressions for a change, in a Spark session that is opened once."""
        if self._expressions is None:
            from penstock.spark.trial import again

            self._expressions = self._stage.enter_context(again(self._pipeline))
        return self._expressions(change)

    def _deliver(self, letter: DeadLetter, changes: pa.RecordBatch) -> None:
        """Send a letter once, under the current epoch, since a receiver refuses older ones."""
        pipeline = self._pipeline
        assignment = Assignment(
            pipeline=pipeline.name,
            lane=letter.lane,
            epoch=pipeline.state.pipeline_state(pipeline.name).epoch,
            attempt=0,
            incarnation=letter.incarnation,
            previous=None,
            emit=lambda event: None,  # the outcome is the report
            is_redrive=True,
            has_messages=pipeline.source.gives_messages,
        )
        with closing(_once(pipeline.sink).open(assignment)) as delivery:
            if not (delivery.offer(changes, PATIENCE) and delivery.drain(PATIENCE)):
                raise DeliveryExhausted(f"the sink did not accept change {letter.change.position} within {PATIENCE:g} s")


def _lies_ahead(letter: DeadLetter, standing: PipelineState, source: Source) -> bool:
    """Whether its lane has not reached it; false for another incarnation of the source, and for a lane that has ended."""
    mark = standing.watermarks.get(letter.lane)
    return mark is not None and letter.change.position > mark.position and source.incarnation(mark.cursor) == letter.incarnation


def _once(sink: Any) -> Any:
    return replace(sink, retry=replace(sink.retry, tries=1, then="halt", keys="wait")) if sink.retry else sink


def drop(pipeline: Pipeline, chosen: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
    """Remove letters and count them as dropped; letters that wait for them stay. Raises TermHeld."""
    with pipeline.state.redriving(pipeline.name):
        some = [letter for letter in pipeline.state.letters(pipeline.name) if chosen(letter)]
        return [letter for letter in some if pipeline.state.remove(letter, redriven=False)]
