"""The status of a pipeline, from what is known of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.change import Lane
from penstock.config import parse
from penstock.coordinator import PipelineState
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourceUnavailable
from penstock.pipeline import Pipeline
from penstock.running.resume import place
from penstock.source import Backlog
from penstock.sources.sqlite import snapshot
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.status import observe, summarise

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = (
    *("name", "mode", "state", "epoch", "holder", "position", "head", "backlog", "lag_seconds", "oldest_undelivered"),
    *("rate", "delivered", "dead", "error"),
)
MAIN, OTHER = Lane("main"), Lane("other")


class TwoLanes(SqliteSource):
    """A log that comes in two lanes."""

    def lanes(self) -> tuple[Lane, ...]:
        return MAIN, OTHER


class LanesAway(SqliteSource):
    """Its lanes cannot be listed at present."""

    def lanes(self) -> tuple[Lane, ...]:
        raise SourceUnavailable("the servers do not answer")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = parse({"name": "orders", "source": {"type": "sqlite", "database": "shop.db"}, "sink": {"type": "discard"}}, tmp_path)
    return replace(made, source=TwoLanes(database=str(tmp_path / "shop.db")))


def mark(position: int) -> Watermark:
    return Watermark(Cursor("c"), position, position)


def waiting(head: int, changes: int, seconds: float) -> Backlog:
    return Backlog(head, changes, NOW - timedelta(seconds=seconds))


def test_the_keys_are_those_that_programs_rely_on(pipeline: Pipeline) -> None:
    assert tuple(json.loads(summarise(pipeline, PipelineState(), {}, NOW).to_json())) == KEYS


def test_a_pipeline_at_work(pipeline: Pipeline) -> None:
    standing = PipelineState(
        epoch=3,
        holder="a",
        is_held=True,
        standbys=1,
        watermarks={MAIN: mark(7)},
        delivered=6,
        rate=1.23456,
        dead=2,
        advanced_at=NOW,
    )
    found = json.loads(summarise(pipeline, standing, {MAIN: waiting(9, 2, 1.5)}, NOW).to_json())
    assert found == {
        "name": "orders",
        "mode": "live",
        "state": "leading",
        "epoch": 3,
        "holder": "a",
        "position": 7,
        "head": 9,
        "backlog": 2,
        "lag_seconds": 1.5,
        "oldest_undelivered": "2026-01-01T11:59:58.500+00:00",
        "rate": 1.235,
        "delivered": 6,
        "dead": 2,
        "error": None,
    }


@pytest.mark.parametrize(
    ("standing", "word"),
    [
        (PipelineState(), "stopped"),
        (PipelineState(epoch=1, holder="a"), "stopped"),
        (PipelineState(epoch=1, holder="a", standbys=2), "standby"),
        (PipelineState(epoch=1, holder="a", is_held=True), "leading"),
        (PipelineState(epoch=1, holder="a", error={"code": "x"}), "halted"),
        (PipelineState(epoch=1, holder="a", standbys=1, error={"code": "x"}), "halted"),
        (PipelineState(epoch=1, holder="a", is_held=True, error={"code": "x"}), "halted"),
    ],
)
def test_the_state_is_one_of_four_words(pipeline: Pipeline, standing: PipelineState, word: str) -> None:
    assert summarise(pipeline, standing, {}, NOW).state == word


def test_nobody_holds_or_delivers_what_is_stopped(pipeline: Pipeline) -> None:
    found = summarise(pipeline, PipelineState(epoch=4, holder="a", rate=9.0, delivered=5), {}, NOW)
    assert (found.epoch, found.holder, found.rate, found.delivered) == (4, None, 0.0, 5)


def test_a_backlog_that_a_source_cannot_count_is_unknown_and_its_lag_is_known(pipeline: Pipeline) -> None:
    lanes = {MAIN: waiting(9, 2, 1.5), Lane("other"): Backlog(9, None, NOW - timedelta(seconds=3))}
    found = summarise(pipeline, PipelineState(), lanes, NOW)
    assert (found.backlog, found.lag_seconds) == (None, 3.0)


def test_an_idle_pipeline_has_no_lag(pipeline: Pipeline) -> None:
    found = summarise(pipeline, PipelineState(), {MAIN: Backlog(9, 0, None)}, NOW)
    assert (found.head, found.backlog, found.lag_seconds, found.oldest_undelivered) == (9, 0, 0.0, None)


def test_a_source_whose_clock_is_ahead_gives_no_negative_lag(pipeline: Pipeline) -> None:
    assert summarise(pipeline, PipelineState(), {MAIN: waiting(9, 1, -5)}, NOW).lag_seconds == 0.0


def test_lanes_are_added_up_and_the_slowest_tells_the_lag(pipeline: Pipeline) -> None:
    standing = PipelineState(watermarks={MAIN: mark(7), OTHER: mark(3)})
    found = summarise(pipeline, standing, {MAIN: waiting(9, 2, 1), OTHER: waiting(8, 5, 4)}, NOW)
    assert (found.position, found.head, found.backlog, found.lag_seconds) == (3, 9, 7, 4.0)


def test_lanes_of_a_snapshot_do_not_count_into_the_position(pipeline: Pipeline) -> None:
    standing = PipelineState(watermarks={MAIN: mark(7), Lane("snapshot:0"): mark(0)})
    assert summarise(pipeline, standing, {MAIN: waiting(9, 2, 1)}, NOW).position == 7


def test_a_source_that_cannot_be_read_is_an_error_and_nothing_is_invented(pipeline: Pipeline) -> None:
    found = summarise(pipeline, PipelineState(watermarks={MAIN: mark(7)}), SourceUnavailable("away", "wait"), NOW)
    assert (found.position, found.head, found.backlog, found.lag_seconds) == (7, None, None, None)
    assert found.error == {"code": "source.unavailable", "message": "away", "remedy": "wait"}


def test_what_a_pipeline_stopped_with_comes_before_what_its_source_says(pipeline: Pipeline) -> None:
    stopped = {"code": "sink.exhausted", "message": "m", "remedy": "r"}
    assert summarise(pipeline, PipelineState(error=stopped), SourceUnavailable("away"), NOW).error == stopped


def test_rows_of_a_snapshot_that_are_still_to_come_wait_since_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "ROWS", 10)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("create table orders (id integer primary key)")
        connection.executemany("insert into orders values (?)", [(number,) for number in range(25)])
    enable(str(tmp_path / "shop.db"))
    source = {"type": "sqlite", "database": "shop.db", "start": "snapshot"}
    pipeline = parse({"name": "orders", "source": source, "sink": {"type": "discard"}}, tmp_path)
    assert observe(pipeline).backlog == 25, "it was never run"
    with closing(pipeline.state.candidate("orders", "test")) as candidate:
        term = candidate.campaign()
        assert term
        place(pipeline, term, None, None)
        planned = pipeline.state.pipeline_state("orders").watermarks[LANE].cursor
        [first, _, last] = pipeline.source.snapshot.ranges(planned).items()
        begun = datetime.fromtimestamp(json.loads(planned)["at"] / 1e6, UTC)
        pipeline.state.note(term, {"code": "sink.failing", "message": "status 503", "remedy": "repair it"})
        for left, (lane, cursor) in ((20, last), (10, first)):
            *_, end = pipeline.source.snapshot.rows(cursor, again=False)
            assert end.upto
            found = observe(pipeline)
            assert found.oldest_undelivered == begun.isoformat(timespec="milliseconds")
            assert found.lag_seconds is not None
            assert found.lag_seconds > 0
            assert found.last_error
            assert found.last_error["code"] == "sink.failing"
            pipeline.state.place(term, {lane: Watermark(end.upto, pipeline.source.position(end.upto))})
            assert observe(pipeline).backlog == left
    found = observe(pipeline)
    assert (found.state, found.backlog, (found.last_error or {})["code"]) == ("stopped", 10, "sink.failing")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("drop table orders")
    assert observe(pipeline).error is None, "capture.broken is for the one that reads the rows"


def test_a_state_file_that_is_not_ours_is_an_error(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_text("something else entirely, and long enough to be read")
    found = observe(pipeline)
    assert found.error
    assert (found.state, found.error["code"]) == ("stopped", "state.invalid")


def test_looking_leaves_no_trace(pipeline: Pipeline, tmp_path: Path) -> None:
    found = observe(pipeline)
    assert found.error
    assert found.error["code"] == "capture.missing"
    assert list(tmp_path.iterdir()) == []


def test_a_source_whose_lanes_cannot_be_listed_is_the_error_of_the_status(pipeline: Pipeline) -> None:
    found = observe(replace(pipeline, source=LanesAway(database="shop.db")))
    assert ((found.error or {})["code"], found.position, found.backlog) == ("source.unavailable", None, None)
