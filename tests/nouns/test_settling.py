"""What a running pipeline says of others that share its log, and does beside one that settles, too."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.change import Lane
from penstock.cli.log import text_line
from penstock.config import parse
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourcePruned, SourceUnavailable
from penstock.event import _KINDS, Event, LogHeld, ReaderReleased, SettledAgain, Unsettled, from_line, to_line
from penstock.owner import Owner
from penstock.pipeline import Pipeline
from penstock.progress.batch_target import Batch
from penstock.running.resume import place
from penstock.running.settling import Settling
from penstock.settings import settings
from penstock.source import Backlog, Settlement, Span, Stamp
from penstock.sources import retain
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.settle import SqliteRetention
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.status import observe, remarks


@pytest.mark.parametrize("kind", _KINDS.values())
def test_every_event_has_a_sentence_and_a_level_of_the_log_and_its_counter_adds_what_it_has(kind: type[Event]) -> None:
    assert "sentence" in vars(kind)
    assert kind.level in ("debug", "info", "warning", "error")
    fields = {one.name for one in dataclasses.fields(kind)}
    assert {name for _, name, _, _ in Formatter().parse(kind.sentence) if name} <= fields
    assert kind.counter is None or {kind.counter.adds, kind.counter.label} - {None} <= fields


def shared(folder: Path, then: str) -> Pipeline:
    """A pipeline that has delivered ten changes of a log on which another one stopped at the third."""
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table orders(id integer primary key)")
        enable(str(folder / "shop.db"))
        for _ in range(10):
            connection.execute("insert into orders default values")
    source = {"type": "sqlite", "database": "shop.db", "retain": {"changes": 5, "then": then}}
    pipeline = parse({"name": "orders", "source": source, "sink": {"type": "discard"}}, folder)
    pipeline.source.retention.register("audit", LANE, pipeline.source.begin(LANE, "3"))
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        pipeline.state.place(term, {LANE: Watermark(pipeline.source.head(LANE), 10)})
    return pipeline


@pytest.mark.parametrize(("then", "kind"), [("keep", LogHeld), ("release", ReaderReleased)])
def test_it_says_once_that_another_one_is_gone_for_too_long_or_was_released(
    tmp_path: Path, then: str, kind: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retain, "GONE", 0.0)
    heard: list[Event] = []
    settling = Settling(shared(tmp_path, then), heard.append)
    for _ in range(3):
        settling.settle()
    [event] = (event for event in heard if isinstance(event, LogHeld | ReaderReleased))
    assert isinstance(event, kind)
    assert (event.pipeline, event.reader, event.position) == ("orders", "audit", 3)
    assert from_line(to_line(event)) == event
    said = text_line(event, datetime.now(UTC))
    assert ("7 changes are kept for audit" if then == "keep" else "audit was released at position 3") in said


@settings
class Overtaken(SqliteSource):
    """Whenever it is asked, another process has gone on and settled that a moment ago."""

    meanwhile: Callable[[], None]

    @property
    def retention(self) -> OvertakenRetention:
        return OvertakenRetention(self.database, self.retain, self.meanwhile)

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        self.meanwhile()
        return super().backlog(lane, after, upto, most)

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        self.meanwhile()
        return super().read(span, reader)


@dataclass(frozen=True)
class OvertakenRetention(SqliteRetention):
    meanwhile: Callable[[], None]

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        self.meanwhile()
        return super().settle(pipeline, lane, upto, owner)


def settled_elsewhere(pipeline: Pipeline, position: int) -> None:
    """Everything up to there is gone from the log."""
    with closing(sqlite3.connect(pipeline.source.database, isolation_level=None)) as connection:
        connection.execute("delete from _penstock_log where seq < ?", (position,))


@pytest.fixture
def beside(tmp_path: Path) -> Callable[[Callable[[], None]], Pipeline]:
    """A pipeline that has come to its fifth change, with something that happens meanwhile."""
    pipeline = shared(tmp_path, "keep")
    pipeline.source.retention.forget("audit")
    stand(pipeline, 5)
    return lambda meanwhile: replace(pipeline, source=Overtaken(database=pipeline.source.database, meanwhile=meanwhile))


def stand(pipeline: Pipeline, position: int) -> None:
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        pipeline.state.place(term, {LANE: Watermark(pipeline.source.begin(LANE, str(position)), position)})


def test_who_finds_that_another_process_has_settled_a_later_watermark_goes_on(beside: Callable[..., Pipeline]) -> None:
    def go_on() -> None:
        stand(pipeline, 8)
        settled_elsewhere(pipeline, 8)

    pipeline = beside(go_on)
    assert Settling(pipeline, print).settle() == 0
    assert pipeline.state.watermark("orders", LANE).position == 8


def moved_once(pipeline: Callable[[], Pipeline]) -> Callable[[], None]:
    """A predecessor's last record, and its pruning."""

    def go_on() -> None:
        if pipeline().state.watermark("orders", LANE).position < 8:
            stand(pipeline(), 8)
            settled_elsewhere(pipeline(), 8)

    return go_on


def test_a_term_that_begins_while_its_predecessor_records_and_settles_starts_at_that_record(
    beside: Callable[..., Pipeline],
) -> None:
    def go_on() -> None:
        """The statement of the predecessor began in its own term, and is committed in the next one."""
        if pipeline.state.watermark("orders", LANE).position < 8:
            pipeline.state.place(term, {LANE: Watermark(pipeline.source.begin(LANE, "8"), 8)})
            settled_elsewhere(pipeline, 8)

    pipeline = beside(go_on)
    with closing(pipeline.state.candidate("orders", "next")) as candidate:
        term = candidate.campaign()
        assert term
        place(pipeline, term, None, None)
    assert pipeline.state.watermark("orders", LANE).position == 8


def test_a_batch_looks_again_where_another_process_has_delivered_and_settled_more(beside: Callable[..., Pipeline]) -> None:
    pipeline = beside(moved_once(lambda: pipeline))
    assert pipeline.source.position(Batch(pipeline).target()[LANE]) == 10


def test_a_batch_does_not_pass_over_changes_that_were_pruned_undelivered(beside: Callable[..., Pipeline]) -> None:
    pipeline = beside(lambda: settled_elsewhere(pipeline, 8))
    with pytest.raises(SourcePruned):
        Batch(pipeline).target()


def test_who_looks_while_a_later_watermark_is_settled_looks_again(beside: Callable[..., Pipeline]) -> None:
    pipeline = beside(moved_once(lambda: pipeline))
    seen = observe(pipeline)
    assert (seen.error, seen.position, seen.backlog) == (None, 8, 2)


def test_what_is_gone_from_before_the_watermark_that_stands_is_an_error(beside: Callable[..., Pipeline]) -> None:
    pipeline = beside(lambda: settled_elsewhere(pipeline, 8))
    with pytest.raises(SourcePruned):
        Settling(pipeline, print).settle()
    assert (observe(pipeline).error or {})["code"] == "source.pruned"


@pytest.fixture
def refusal(beside: Callable[..., Pipeline]) -> tuple[Pipeline, list[SourceUnavailable]]:
    """A pipeline, and what its source refuses everything with, if anything."""
    refusals: list[SourceUnavailable] = []

    def refuse() -> None:
        if refusals:
            raise refusals[0]

    return beside(refuse), refusals


def test_a_source_that_refuses_for_long_is_told_once_and_so_is_its_recovery(
    refusal: tuple[Pipeline, list[SourceUnavailable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    pipeline, refusals = refusal
    settling, now = Settling(pipeline, heard.append), [0.0]
    monkeypatch.setattr("penstock.running.settling.time", SimpleNamespace(monotonic=lambda: now[0]))
    refusals.append(SourceUnavailable("shop.db: attempt to write a readonly database", "allow this user to write"))
    for now[0] in (1.0, 10.9, 11.0, 12.0):
        settling.settle()
        assert len(heard) == (now[0] >= 11.0)
    [event] = heard
    assert isinstance(event, Unsettled)
    assert from_line(to_line(event)) == event
    assert "readonly database; allow this user to write" in text_line(event, datetime.now(UTC))
    refusals.clear()
    monkeypatch.undo()
    settling.settle()
    settling.settle()
    assert [type(event) for event in heard if isinstance(event, SettledAgain | Unsettled)] == [Unsettled, SettledAgain]


def test_a_batch_that_ends_tells_of_a_refusal_at_once(refusal: tuple[Pipeline, list[SourceUnavailable]]) -> None:
    heard: list[Event] = []
    refusal[1].append(SourceUnavailable("disk full"))
    Settling(refusal[0], heard.append).settle(patience=0.0)
    assert [type(event) for event in heard] == [Unsettled]


@settings
class PartlyReadonly(SqliteSource):
    """Two lanes, the first of which cannot be settled."""

    def lanes(self) -> tuple[Lane, ...]:
        return Lane("readonly"), LANE

    @property
    def retention(self) -> PartlyReadonlyRetention:
        return PartlyReadonlyRetention(self.database, self.retain)


@dataclass(frozen=True)
class PartlyReadonlyRetention(SqliteRetention):
    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        if lane != LANE:
            raise SourceUnavailable("the file of this lane is readonly")
        return super().settle(pipeline, lane, upto, owner)


def test_one_lane_that_is_settled_does_not_hide_another_that_is_not(tmp_path: Path) -> None:
    pipeline = shared(tmp_path, "keep")
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        pipeline.state.place(term, {Lane("readonly"): Watermark(pipeline.source.head(LANE), 10)})
    heard: list[Event] = []
    settling = Settling(replace(pipeline, source=PartlyReadonly(database=pipeline.source.database)), heard.append)
    for _ in range(3):
        settling.settle(patience=0.0)
    assert [type(event) for event in heard if isinstance(event, SettledAgain | Unsettled)] == [Unsettled]


def test_a_pipeline_starts_on_a_source_that_cannot_be_settled(refusal: tuple[Pipeline, list[SourceUnavailable]]) -> None:
    pipeline, refusals = refusal
    refusals.append(SourceUnavailable("shop.db: attempt to write a readonly database"))
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        assert place(pipeline, term, "now", None) == 5


def test_status_says_that_a_leader_is_not_noted_in_its_source(tmp_path: Path) -> None:
    pipeline = shared(tmp_path, "keep")
    pipeline.source.retention.register("orders", LANE, pipeline.source.begin(LANE, "10"))
    with closing(sqlite3.connect(pipeline.source.database, isolation_level=None)) as connection:
        connection.execute("update _penstock_reader set noted_at = noted_at - 3 where pipeline = 'orders'")
    assert not [said for said in remarks(pipeline) if "orders leads" in said]
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        assert candidate.campaign()
        [said] = (said for said in remarks(pipeline) if "orders leads" in said)
    assert "its last contact to the source was 3 d ago" in said
