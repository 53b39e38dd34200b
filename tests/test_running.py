"""What a process does with the errors of a pipeline, without Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from deadline import until
from penstock.change import Lane
from penstock.coordinator import Tally
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import EngineFailed, EngineLost, EngineSlots, PenstockError, SourcePruned, StateRefused
from penstock.event import Event, LaneClaimed, LaneReleased, Led, Restarted, StandingBy
from penstock.pipeline import Pipeline
from penstock.running import run as running
from penstock.running.pipeline_run import PipelineRun
from penstock.running.run import run
from penstock.settings import settings
from penstock.sinks.discard.sink import DiscardSink
from penstock.source import Settlement
from penstock.sources.outbox.mark.parts import MarkRetention
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.status import observe


class ReadyQuery:
    """Waits for a term that never comes."""

    is_over = False

    def prepare(self, is_enough: object) -> None:
        return None

    def stop(self) -> None:
        self.is_over = True


class NoEngine:
    """Nothing comes so far as to need Spark; it counts the queries that were prepared."""

    def __init__(self) -> None:
        self.made: list[ReadyQuery] = []

    def lost(self) -> None:
        return None

    def warm(self, is_enough: object) -> None:
        return None

    def query(self, pipeline: Pipeline, *_: object) -> ReadyQuery:
        self.made.append(ReadyQuery())
        return self.made[-1]


class FailingQuery(ReadyQuery):
    """Fails as soon as there is a term."""

    def start(self, term: object) -> None:
        raise EngineFailed("the session is gone")

    def ask_to_stop(self) -> None:
        return None


class BrokenEngine(NoEngine):
    """No query of it ever starts."""

    def query(self, pipeline: Pipeline, *_: object) -> FailingQuery:
        return FailingQuery()


class HeldQuery(FailingQuery):
    """Its worker has a request under way when it is asked to stop, and releases its lane later."""

    def __init__(self, run: PipelineRun, stop: Flag) -> None:
        self._run, self._stop, self._is_asked, self.done = run, stop, False, list[str]()

    def start(self, term: object) -> None:
        self._run.on_event(LaneClaimed(pipeline="p", lane="main", epoch=1, attempt=0, position=0))
        self._stop.set()

    def has_ended(self) -> bool:
        return False

    def was_stopped_inside(self) -> bool:
        return False

    def ask_to_stop(self) -> None:
        self._is_asked = True

    def failure(self) -> None:
        if self._is_asked:  # the process looks whether it must still wait
            self.done.append("released")
            self._run.on_event(LaneReleased(pipeline="p", lane="main", position=0))

    def stop(self) -> None:
        self.done.append("stopped")


@settings
class LateSource(SyntheticSource):
    """It has nothing more at this place; the first time because another process leads already, and has settled it."""

    state: str

    @property
    def retention(self) -> LateRetention:
        return LateRetention(lambda: None, self.state)


@dataclass(frozen=True)
class LateRetention(MarkRetention):
    state: str

    def settle(self, *_: object, **__: object) -> Settlement:
        with closing(sqlite3.connect(self.state)) as connection, connection:
            connection.execute("update terms set epoch = 7, holder = 'rival' where epoch = 2")
        raise SourcePruned("it did not wait for this pipeline")


def test_a_state_that_cannot_be_read_at_the_start_is_told_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    state, told = SqliteCoordinator(path=str(tmp_path / "state.db")), list[Any]()
    run = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, Flag(), told.append)
    with pytest.raises(StateRefused), run.entered():
        raise AssertionError("it has entered")
    assert [type(event).__name__ for event in told] == ["Halted"]
    assert isinstance(run.error, StateRefused)


def test_who_is_asked_to_stop_before_it_stands_leaves_nothing_behind(tmp_path: Path) -> None:
    state, stop = SqliteCoordinator(path=str(tmp_path / "state.db")), Flag()
    run = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, stop, print)
    with run.entered():
        stop.set()
        run.run(NoEngine())  # type: ignore[arg-type]
    assert run.error is None


def test_a_query_is_stopped_when_its_workers_have_finished_the_requests_under_way(tmp_path: Path) -> None:
    state, stop, engine = SqliteCoordinator(path=str(tmp_path / "state.db")), Flag(), NoEngine()
    run = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, stop, print)
    query = HeldQuery(run, stop)
    engine.query = lambda *_: query  # type: ignore[assignment, return-value]
    with run.entered():
        run.run(engine)  # type: ignore[arg-type]
    assert query.done == ["released", "stopped"]


def test_none_of_several_starts_when_the_state_of_one_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "away.db").mkdir()
    stop, told = Flag(), list[tuple[str, str]]()

    def on_event(event: Event) -> None:
        told.append((type(event).__name__, event.pipeline))
        if isinstance(event, Led):
            stop.set()

    made = [
        Pipeline(n, SyntheticSource(rate=1.0), DiscardSink(), SqliteCoordinator(path=str(tmp_path / n))) for n in ("a", "away.db")
    ]
    with pytest.raises(StateRefused):
        run(*made, stop=stop, observer=on_event)
    assert told == [("Halted", "away.db")]


def test_what_a_deposed_leader_meets_halts_nothing_and_it_stands_by(tmp_path: Path) -> None:
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    source = LateSource(rate=1.0, state=state.path)
    with closing(state.candidate("p", "before")) as candidate:
        term = candidate.campaign()
        assert term
        state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        candidate.resign()
    told: list[Any] = []
    run = PipelineRun(Pipeline("p", source, DiscardSink(), state), None, Flag(), told.append)
    with run.entered():
        run.run(NoEngine())  # type: ignore[arg-type]
    seen = [(type(event).__name__, getattr(event, "epoch", None)) for event in told if not isinstance(event, StandingBy)]
    assert seen == [("Led", 2), ("TermGone", 2), ("Led", 8), ("Halted", None)]
    assert isinstance(run.error, SourcePruned)
    assert (state.pipeline_state("p").error or {})["code"] == "source.pruned"


@pytest.mark.parametrize(("error", "is_told"), [(EngineFailed, False), (EngineLost, True), (EngineSlots, True)])
def test_a_warm_up_that_fails_in_a_way_that_may_pass_halts_nobody(
    tmp_path: Path, error: type[PenstockError], is_told: bool
) -> None:
    class ColdEngine(NoEngine):
        def warm(self, is_enough: object) -> None:
            raise error("the query of warm-up did not stop")

    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    run = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, Flag(), print)
    with pytest.raises(error) if is_told else nullcontext():
        run._make_ready(ColdEngine())  # type: ignore[arg-type]


def test_who_stands_by_again_before_its_query_was_needed_keeps_it_since_a_second_would_want_its_slot(tmp_path: Path) -> None:
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    run, engine = PipelineRun(Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), None, Flag(), print), NoEngine()
    run._make_ready(engine)  # type: ignore[arg-type]
    run._make_ready(engine)  # type: ignore[arg-type]
    assert [one.is_over for one in engine.made] == [False]
    run._dismiss()
    assert [one.is_over for one in engine.made] == [True]


def test_what_makes_it_start_a_query_again_shows_in_the_state_and_no_longer_when_a_lane_is_carried(tmp_path: Path) -> None:
    state, stop = SqliteCoordinator(path=str(tmp_path / "state.db")), Flag()
    pipeline = Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state)
    run = PipelineRun(pipeline, None, stop, lambda event: stop.set() if isinstance(event, Restarted) else None)
    with run.entered():
        run.run(BrokenEngine())  # type: ignore[arg-type]
    found = observe(pipeline)
    assert (found.state, found.error, (found.last_error or {})["code"]) == ("stopped", None, "engine.failed")
    with closing(state.candidate("p", "next")) as candidate:
        term = candidate.campaign()
        assert term
        with state.claim(term, LANE, 0) as claim:
            until(lambda: claim.advance(claim.watermark, Tally()) or observe(pipeline).last_error is None)


def test_one_that_halted_does_not_hide_that_the_engine_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Pipeline(n, SyntheticSource(rate=1.0), DiscardSink(), SqliteCoordinator(path=str(tmp_path / n))) for n in ("a", "b")]
    ends = {"a": SourcePruned("gone"), "b": EngineLost("the JVM is gone")}

    def carried(runs: Sequence[PipelineRun], engine: object) -> None:
        for each in runs:
            each.error = ends[each.pipeline.name]

    monkeypatch.setattr(running, "_carry_all", carried)
    monkeypatch.setattr(running, "Engine", lambda *_: NoEngine())
    with pytest.raises(EngineLost):
        run(*made, stop=Flag())


@settings
class CountingSource(SyntheticSource):
    """A log that begins at any position."""

    def begin(self, lane: Lane, start: str) -> Cursor:
        return super().begin(lane, "beginning") if start == "beginning" else Cursor('{"position":60}')


@pytest.mark.parametrize("since", [None, "went on", "halted again"])
def test_what_a_person_said_counts_once_and_not_for_a_standby_that_leads_later(tmp_path: Path, since: str | None) -> None:
    state, stop, told = SqliteCoordinator(path=str(tmp_path / "state.db")), Flag(), list[Any]()
    source = CountingSource(rate=1.0)

    def led(error: Mapping[str, str] | None, position: int) -> None:
        with closing(state.candidate("p", "before")) as candidate:
            term = candidate.campaign()
            assert term
            state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), position)})
            if error:
                state.halt(term, error)
            candidate.resign()

    def on_event(event: Event) -> None:
        told.append(type(event).__name__)
        if isinstance(event, Restarted):
            stop.set()

    halted = SourcePruned("gone").facts()
    led(halted, 3)
    standby = PipelineRun(Pipeline("p", source, DiscardSink(), state), "now", stop, on_event)
    with standby.entered():
        if since:
            led(halted if since == "halted again" else None, 10)
        standby.run(BrokenEngine())  # type: ignore[arg-type]
    mark = state.watermark("p", LANE)
    assert mark
    assert (mark.position, "Warned" in told) == ((10, True) if since else (60, False))
