"""Sources and sinks, each with one fault, and the suite that refuses it. Only `test_suites.py` runs this file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from sink_rigs import MemoryRig
from source_rigs import LanesRig, MarkedRig, SqliteRig

from many_lanes import LanesSource
from memory_sink import MemorySink
from penstock.change import Change, Op, from_batch, to_batch
from penstock.cursor import Cursor
from penstock.errors import CursorInvalid, SourceRewound
from penstock.settings import settings
from penstock.sink import Assignment, Sink
from penstock.source import Span, Stamp, Window
from penstock.sources.outbox.mark.parts import MarkLeases
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.sqlite.settle import SqliteRetention
from penstock.sources.sqlite.snapshot import SqliteSnapshot
from penstock.sources.sqlite.source import SqliteSeek, SqliteSource
from penstock.testing import contract

READS: dict[str, int] = defaultdict(int)


class SkipsARow(LanesSource):
    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        for batch in super().read(span, reader):
            yield batch.slice(0, 1)
            yield batch.slice(2)


class ReadsDifferently(LanesSource):
    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        READS[self.folder] += 1
        for batch in super().read(span, reader):
            yield to_batch(change.replace(table=f"t{READS[self.folder]}") for change in from_batch(batch))


class HeadLagsBehind(LanesSource):
    def head(self, lane: Any) -> Cursor:
        name, position = json.loads(super().head(lane))
        return Cursor(json.dumps([name, min(position, 2)]))


class SplitLosesASpan(LanesSource):
    def split(self, span: Span, parts: int) -> Sequence[Span]:
        return super().split(span, parts)[:1]


class Stutters:
    def __init__(self, inner: Any) -> None:
        self._inner, self._again, self.close = inner, None, inner.close

    def poll(self, wait: float) -> Window | None:
        window, self._again = self._again or self._inner.poll(wait), None
        if window and window.changes.num_rows and not READS[str(id(self))]:
            READS[str(id(self))], self._again = 1, window
        return window


class FollowsTwice(LanesSource):
    def open(self, *given: Any) -> Any:
        return Stutters(super().open(*given))


class NeverWaits(LanesSource):
    def open(self, *given: Any) -> Any:
        following = super().open(*given)
        poll = following.poll
        following.poll = lambda wait: poll(0.0)
        return following


class CountsOneTooMany(LanesSource):
    def backlog(self, *given: Any, **named: Any) -> Any:
        found = super().backlog(*given, **named)
        return replace(found, changes=found.changes + 1)


class GoesOnAtTheSameChange(LanesSource):
    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        return super().cursor_after(change.replace(position=change.position - 1), since)


class TakesAnyCursor(LanesSource):
    def position(self, cursor: Cursor) -> int:
        try:
            return super().position(cursor)
        except CursorInvalid:
            return 0


class LaneHidesFromTheList(LanesSource):
    def lanes(self) -> Any:
        return super().lanes()[:1]


class EndOfALaneMoves(LanesSource):
    def end(self, lane: Any) -> Cursor | None:
        READS[self.folder] += 1
        found = super().end(lane)
        return Cursor(json.dumps([lane, 1000 + READS[self.folder]])) if found else None


class ReadsOnAfterAReplacement(SqliteSource):
    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().read(span, reader)
        except SourceRewound:
            return


class Forgetful(SqliteRetention):
    def settle(self, pipeline: str, *given: Any) -> Any:
        for reader in self.readers():
            self.forget(reader.pipeline)
        return super().settle(pipeline, *given)


class ForgetsOtherPipelines(SqliteSource):
    @property
    def retention(self) -> Forgetful:
        return Forgetful(self.database, self.retain)


class Ownerless(SqliteRetention):
    def settle(self, pipeline: str, lane: Any, upto: Cursor, owner: Any = None) -> Any:
        return super().settle(pipeline, lane, upto)


class IgnoresTheOwner(SqliteSource):
    @property
    def retention(self) -> Ownerless:
        return Ownerless(self.database, self.retain)


class Late(SqliteSeek):
    def since(self, lane: Any, moment: Any) -> Cursor:
        with self.reading() as log:
            return log.place(log.confirm().head).to_cursor()


class SeeksTooFar(SqliteSource):
    @property
    def seek(self) -> Late:
        return Late(self.database, self._reading)


class Lossy(SqliteSnapshot):
    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        for window in super().rows(cursor, again=again):
            yield replace(window, changes=window.changes.slice(1))


class LosesARowOfARange(SqliteSource):
    @property
    def snapshot(self) -> Lossy:
        return Lossy(self.database, self._reading, self._choice)


class Silent(SqliteSnapshot):
    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        for window in super().rows(cursor, again=again):
            yield replace(window, changes=to_batch(one for one in from_batch(window.changes) if one.op != Op.DELETE))


class ConcealsRemovedRows(SqliteSource):
    @property
    def snapshot(self) -> Silent:
        return Silent(self.database, self._reading, self._choice)


class Usurping(MarkLeases):
    def open(self, reader: Stamp) -> Any:
        return super().open(Stamp(1, 2))


class PurgesRowsOfAnother(MarkSource):
    @property
    def row_lease(self) -> Usurping:
        return Usurping(self._opened)


ARRIVED: dict[str, list[tuple[int, str]]] = defaultdict(list)


@settings
class ListSink(Sink):
    name: str = ""

    def open(self, assignment: Assignment) -> ListDelivery:
        return ListDelivery(ARRIVED[self.name], assignment.attempt)


@dataclass
class ListDelivery:
    arrived: list[tuple[int, str]]
    attempt: int
    last: Change | None = None

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        for change in from_batch(changes):
            self.take(change)
            self.last = change
        return True

    def take(self, change: Change) -> None:
        self.arrived.append((change.position, str(change.after)))

    def delivered(self) -> Change | None:
        return self.last

    def drain(self, wait: float) -> bool:
        return True

    def close(self) -> None: ...


class OvertakingDelivery(ListDelivery):
    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        return super().offer(changes.take(pa.array(range(changes.num_rows - 1, -1, -1))), wait)


class BufferingDelivery(ListDelivery):
    """Sends what it has taken when it is drained or closed, and reports it before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.buffer: list[Change] = []

    def take(self, change: Change) -> None:
        self.buffer.append(change)

    def drain(self, wait: float) -> bool:
        for change in self.buffer:
            super().take(change)
        self.buffer = []
        return True


class LateDelivery(BufferingDelivery):
    """Sends what it has taken when it is closed, and does not report it."""

    def delivered(self) -> Change | None:
        return None if self.buffer else self.last

    def close(self) -> None:
        reported = self.delivered()
        self.drain(0.0)
        self.last = reported


class NumberingDelivery(ListDelivery):
    def take(self, change: Change) -> None:
        self.arrived.append((change.position, f"attempt {self.attempt}"))


def sink_of(delivery: type[ListDelivery]) -> type[ListSink]:
    return type(delivery.__name__, (ListSink,), {"open": lambda self, given: delivery(ARRIVED[self.name], given.attempt)})


OvertakesAKey, ReportsTooEarly, DeliversInClose, ChangesARepeat = map(
    sink_of, (OvertakingDelivery, BufferingDelivery, LateDelivery, NumberingDelivery)
)


class DropsWhatFails(MemorySink):
    def open(self, assignment: Assignment) -> Any:
        return ListDelivery([], assignment.attempt)


class AcceptsPoison(MemorySink):
    def open(self, assignment: Assignment) -> Any:
        return MemorySink(name=f"{self.name} of others", retry=self.retry).open(assignment)


class ListRig(contract.SinkRig):
    def __init__(self, sink: type[ListSink]) -> None:
        self.name = uuid4().hex
        super().__init__(sink(name=self.name))

    def arrived(self) -> Sequence[tuple[int, object]]:
        return ARRIVED[self.name]


def made(kind: type, folder: Path) -> Any:
    """A rig with this source or sink instead of a sound one."""
    if issubclass(kind, ListSink):
        return ListRig(kind)
    if issubclass(kind, MemorySink):
        rig: Any = MemoryRig(1)
        rig.sink = kind(name=rig.name)
        return rig
    if issubclass(kind, LanesSource):
        rig = LanesRig(folder)
        rig.source = kind(folder=str(folder))
        return rig
    rig = MarkedRig(folder) if issubclass(kind, MarkSource) else SqliteRig(folder)
    rig.source = kind(database=rig.source.database)
    return rig


FAULTS: dict[type, tuple[type, str]] = {
    SkipsARow: (contract.SourceContract, "test_following_gives_what_reading_gives"),
    ReadsDifferently: (contract.SourceContract, "test_reading_a_span_twice_gives_the_same_changes"),
    HeadLagsBehind: (contract.SourceContract, "test_the_head_never_goes_back_and_nothing_lies_after_it"),
    SplitLosesASpan: (contract.SourceContract, "test_the_spans_of_a_split_are_disjoint_in_order_and_complete"),
    FollowsTwice: (contract.SourceContract, "test_following_gives_every_change_once_while_it_is_written"),
    NeverWaits: (contract.SourceContract, "test_a_poll_ends_when_its_wait_is_over"),
    CountsOneTooMany: (
        contract.SourceContract,
        "test_the_backlog_counts_what_lies_between_two_cursors_and_ends_at_a_bound",
    ),
    GoesOnAtTheSameChange: (contract.SourceContract, "test_reading_goes_on_after_any_change"),
    TakesAnyCursor: (contract.SourceContract, "test_text_that_is_no_cursor_is_refused"),
    SqliteSource: (contract.SourceContract, "test_every_declared_part_is_tested"),
    LaneHidesFromTheList: (contract.LanesContract, "test_lanes_appear_while_a_pipeline_runs"),
    EndOfALaneMoves: (contract.LanesContract, "test_the_end_of_a_lane_is_for_good"),
    ReadsOnAfterAReplacement: (contract.ReplayableSourceContract, "test_a_replaced_source_is_noticed"),
    ForgetsOtherPipelines: (contract.SharedSourceContract, "test_settling_is_idempotent_and_keeps_what_is_needed"),
    IgnoresTheOwner: (
        contract.SharedSourceContract,
        "test_a_registration_belongs_to_one_state_and_that_of_another_changes_nothing",
    ),
    SeeksTooFar: (contract.SeekContract, "test_a_pipeline_begins_before_the_first_change_of_a_moment"),
    LosesARowOfARange: (contract.SnapshotContract, "test_the_ranges_hold_every_row_once"),
    ConcealsRemovedRows: (contract.SnapshotContract, "test_rows_that_were_removed_between_two_attempts_come_as_deleted"),
    PurgesRowsOfAnother: (contract.RowLeaseContract, "test_a_late_call_of_a_deposed_holder_has_no_effect"),
    OvertakesAKey: (contract.SinkContract, "test_first_deliveries_happen_in_the_order_offered_per_key_and_all_arrive"),
    ReportsTooEarly: (contract.SinkContract, "test_delivered_moves_forward_only_and_never_ahead_of_the_destination"),
    DeliversInClose: (contract.SinkContract, "test_after_closing_nothing_more_arrives_and_delivered_still_answers"),
    ChangesARepeat: (contract.SinkContract, "test_changes_that_are_offered_again_arrive_with_the_same_content"),
    DropsWhatFails: (contract.RetryContract, "test_changes_that_fail_are_sent_again_until_they_are_accepted"),
    AcceptsPoison: (contract.PoisonContract, "test_a_refused_change_halts_the_delivery"),
}


def suite_of(kind: type, suite: type) -> type:
    """The suite over this kind."""

    @pytest.fixture
    def rig(self: Any, tmp_path: Path) -> Any:
        return made(kind, tmp_path)

    return type(f"Test{kind.__name__}", (suite,), {"rig": rig, "patience": 2.0})


globals().update({f"Test{kind.__name__}": suite_of(kind, suite) for kind, (suite, _) in FAULTS.items()})
