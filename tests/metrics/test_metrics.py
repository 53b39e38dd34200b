"""Metrics and health over HTTP, from real stores and the events that a pipeline tells."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deadline import PATIENCE, until
from penstock.config import parse
from penstock.coordinator import PipelineState
from penstock.cursor import Watermark
from penstock.errors import ConfigInvalid
from penstock.event import (
    AttemptFailed,
    CallDied,
    ChangeDropped,
    ChangeParked,
    ChangesParked,
    ChangesPassed,
    ChangesWaited,
    Completed,
    Delivered,
    DeliveryRetried,
    Event,
    Halted,
    LaneClaimed,
    Led,
    ReaderReleased,
    Restarted,
    Settled,
    SettledAgain,
    StandingBy,
    StateAway,
    StateBack,
    Stopped,
    TermGone,
    Unsettled,
)
from penstock.metrics import watch as watching
from penstock.metrics.health import ailment
from penstock.metrics.server import address, health, serving
from penstock.metrics.tally import Tally
from penstock.metrics.watch import FRESH_SECONDS, PAST_SECONDS, Sight, Watch
from penstock.pipeline import Pipeline
from penstock.source import Backlog
from penstock.sources.outbox.mark.source import MarkSource
from penstock.sources.sqlite.settle import SqliteRetention
from penstock.sources.sqlite.source import LANE
from penstock.status import summarise
from servers.ports import free_port
from shop import Shop

DOCS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
NAME = "shop"
LED = Led(pipeline=NAME, epoch=1, holder="me")
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


@pytest.fixture
def pipeline(shop: Shop, tmp_path: Path) -> Pipeline:
    return parse({"name": NAME, "source": {"type": "sqlite", "database": "shop.db"}, "sink": {"type": "discard"}}, tmp_path)


def reach(pipeline: Pipeline, position: int, trouble: dict[str, str] | None = None) -> None:
    """Record that everything up to there is delivered, as a new leader that then goes."""
    candidate = pipeline.state.candidate(NAME, "test")
    term = candidate.campaign()
    assert term
    cursor = pipeline.source.begin(LANE, str(position))
    pipeline.source.retention.register(NAME, LANE, cursor)
    pipeline.state.place(term, {LANE: Watermark(cursor, position)})
    if trouble:
        pipeline.state.note(term, trouble)
    candidate.resign()
    candidate.close()


class Served:
    """A server, and who tells it of events."""

    def __init__(self, port: int, emit: Callable[[Event], None]) -> None:
        self.port, self.emit = port, emit

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        try:
            with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", headers=headers), timeout=PATIENCE) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def samples(self) -> Samples:
        text = self.get("/metrics")[2]
        return {
            (sample.name, tuple(value for key, value in sorted(sample.labels.items()) if key != "pipeline")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def served(pipeline: Pipeline) -> Iterator[Served]:
    port = free_port()
    with serving([pipeline], str(port)) as emit:
        yield Served(port, emit)


POISON: Any = {"position": 1, "table": "t", "key": "{}", "code": "sink.exhausted", "message": "refused"}
RESTARTED = Restarted(pipeline=NAME, code="engine.failed", message="oh", wait_seconds=0.1)
EVENTS = (
    LED,
    Delivered(pipeline=NAME, lane="main", changes=3, position=3),
    Delivered(pipeline=NAME, lane="main", changes=4, position=7),
    Delivered(pipeline="another", lane="main", changes=99, position=7),
    DeliveryRetried(pipeline=NAME, reason="503", tries=1, wait_seconds=0.1),
    AttemptFailed(pipeline=NAME, code="state.unavailable", message="away", attempt=0),
    CallDied(pipeline=NAME, tries=1, **POISON | {"code": "engine.failed"}),
    RESTARTED,
    Settled(pipeline=NAME, position=7, pruned=5),
    ReaderReleased(pipeline=NAME, reader="old", position=1, silent_seconds=1.0),
    TermGone(pipeline=NAME, epoch=1, reason="gone"),
    ChangeParked(pipeline=NAME, **POISON),
    ChangesParked(pipeline=NAME, changes=8),
    ChangesWaited(pipeline=NAME, changes=3),
    ChangesPassed(pipeline=NAME, changes=2),
    ChangeDropped(pipeline=NAME, **POISON),
    LED,
)


@pytest.mark.parametrize("event", [LED, TermGone(pipeline=NAME, epoch=1, reason="gone"), StandingBy(pipeline=NAME, holder="b")])
def test_an_error_of_an_errand_that_is_over_is_told_no_more(served: Served, pipeline: Pipeline, event: Event) -> None:
    served.emit(RESTARTED)
    assert served.samples()["penstock_error", ("engine.failed",)] == 1
    served.emit(event)
    until(lambda: "penstock_error" not in {name for name, _ in served.samples()})


def test_what_the_stores_know_and_what_the_process_has_seen_is_served(served: Served, shop: Shop, pipeline: Pipeline) -> None:
    shop.sell(9)
    reach(pipeline, 7)
    for event in EVENTS:
        served.emit(event)
    found = served.samples()
    assert {
        "penstock_epoch": 1,
        "penstock_position": 7,
        "penstock_head": 9,
        "penstock_backlog_changes": 2,
        "penstock_delivered_changes_total": 7,
        "penstock_delivery_retries_total": 1,
        "penstock_pruned_changes_total": 5,
        "penstock_parked_changes_total": 9,
        "penstock_waited_changes_total": 3,
        "penstock_passed_changes_total": 2,
        "penstock_dropped_changes_total": 1,
        "penstock_readers_released_total": 1,
        "penstock_terms_total": 2,
        "penstock_terms_lost_total": 1,
        "penstock_healthy": 1,
    }.items() <= {name: value for (name, labels), value in found.items() if not labels}.items()
    assert 0 <= found["penstock_lag_seconds", ()] < 60
    assert found["penstock_restarts_total", ("engine.failed",)] == 1
    assert found["penstock_attempts_failed_total", ("state.unavailable",)] == 1
    assert not [name for name, _ in found if name == "penstock_error"], "it was of a term that is over"
    assert found["penstock_log_held_changes", (NAME,)] == 2
    assert found["process_open_fds", ()] > 0
    states = {labels[0]: value for (name, labels), value in found.items() if name == "penstock_state"}
    assert [state for state, value in states.items() if value] == ["leading"]
    assert len(states) == 6


def test_the_documented_metrics_are_those_that_are_served(served: Served, shop: Shop, pipeline: Pipeline) -> None:
    shop.sell(2)
    reach(pipeline, 1)
    for event in (*EVENTS, RESTARTED):
        served.emit(event)
    text = served.get("/metrics")[2]
    kinds = dict(re.findall(r"^# TYPE (penstock_\w+) (\w+)", text, re.MULTILINE))
    assert kinds == dict(re.findall(r"^\| `(penstock_\w+)` \| (\w+) \|", DOCS, re.MULTILINE))
    assert set(kinds) == {name for name, _ in served.samples() if name.startswith("penstock_")}


def test_the_alert_rules_use_metrics_that_exist_and_each_has_its_answer(served: Served) -> None:
    served_names = re.findall(r"^# TYPE (\w+)", served.get("/metrics")[2], re.MULTILINE)
    rules = yaml.safe_load(DOCS.split("```yaml\n# penstock.rules.yaml")[1].split("\n", 1)[1].split("```")[0])
    answers = DOCS.rsplit("| alert |", 1)[1]
    [group] = rules["groups"]
    for rule in group["rules"]:
        used = set(re.findall(r"\b(?:penstock_\w+|process_\w+|up\b)", rule["expr"]))
        assert used
        assert used <= {"up", *served_names}
        assert f"`{rule['alert']}`" in answers
        assert rule["annotations"]["summary"]


def test_a_scraper_gets_the_format_that_it_asks_for(served: Served) -> None:
    assert served.get("/metrics")[1].startswith("text/plain")
    _, kind, text = served.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert served.get("/nonsense")[0] == 404


def test_one_who_asks_and_goes_leaves_no_noise(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_connection(("127.0.0.1", served.port))) as rude:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 3)
    until(lambda: not [thread for thread in threading.enumerate() if "process_request" in thread.name])
    assert served.get("/metrics")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ((), "starting", "starting: this process does not run the pipeline"),
        ((StandingBy(pipeline=NAME, holder="other"),), "standby", None),
        ((LED,), "leading", None),
        ((LED, TermGone(pipeline=NAME, epoch=1, reason="gone")), "standby", None),
        ((LED, Stopped(pipeline=NAME, position=1)), "stopped", "stopped: this process does not run the pipeline"),
        ((Completed(pipeline=NAME, position=1),), "completed", None),
        ((LED, Halted(pipeline=NAME, code="engine.lost", message="gone", remedy="")), "halted", "halted by engine.lost: gone"),
    ],
)
def test_health_follows_from_what_the_process_is_to_the_pipeline(
    served: Served, events: tuple[Event, ...], state: str, reason: str | None
) -> None:
    for event in events:
        served.emit(event)
    status, _, text = served.get("/healthz")
    found = json.loads(text)
    assert (found["pipelines"][NAME]["state"], found["pipelines"][NAME]["reason"]) == (state, reason)
    assert (status, found["healthy"]) == ((503, False) if reason else (200, True))


def test_a_source_that_cannot_be_read_is_no_health(served: Served, shop: Shop) -> None:
    served.emit(LED)
    shop.path.rename(shop.path.with_name("away.db"))
    status, _, text = served.get("/healthz")
    assert status == 503
    assert "capture.missing" in json.loads(text)["pipelines"][NAME]["reason"]


def test_a_leader_that_gets_nowhere_is_stalled_and_one_that_moves_is_not(shop: Shop, pipeline: Pipeline) -> None:
    now = [0.0]
    watch = Watch([pipeline], lambda: now[0])
    shop.sell(3)
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        connection.execute("update _penstock_log set at = at - 0.1")  # more than two hours
    reach(pipeline, 1)
    watch.on_event(LED)
    assert health(watch)[0] == 200, "it has only begun"
    now[0] = 59.0
    watch.on_event(Delivered(pipeline=NAME, lane="main", changes=1, position=2))
    now[0] = 118.0
    assert health(watch)[0] == 200, "old changes are being worked off"
    now[0] = 120.0
    code, told = health(watch)
    assert (code, "stalled: 2 changes wait, none was delivered for 61 s" in json.dumps(told)) == (503, True)
    assert health(watch, "stalled=2m")[0] == 200
    assert health(watch, "stalled=nonsense")[0] == 400
    reach(pipeline, 3)
    now[0] = 300.0
    assert health(watch)[0] == 200, "nothing waits"


def test_changes_that_have_just_come_to_an_idle_leader_are_no_stall(shop: Shop, pipeline: Pipeline) -> None:
    now = [0.0]
    watch = Watch([pipeline], lambda: now[0])
    watch.on_event(LED)
    now[0] = 9999.0
    shop.sell(1)
    assert health(watch)[0] == 200


def test_an_error_shows_until_something_is_delivered(served: Served) -> None:
    served.emit(LED)
    served.emit(RESTARTED)
    assert ("penstock_error", ("engine.failed",)) in served.samples()
    served.emit(Delivered(pipeline=NAME, lane="main", changes=1, position=2))
    assert "penstock_error" not in {name for name, _ in served.samples()}


def test_an_error_of_a_pipeline_with_nothing_to_deliver_is_past_once_its_lane_was_carried_for_a_while(pipeline: Pipeline) -> None:
    now = [0.0]
    watch = Watch([pipeline], lambda: now[0])
    claimed = LaneClaimed(pipeline=NAME, lane="log", epoch=1, attempt=1, position=0)

    def trouble() -> str | None:
        [sight] = watch.sights()
        return sight.trouble

    for event in (LED, claimed, RESTARTED):
        watch.on_event(event)
    now[0] += PAST_SECONDS
    assert trouble(), "no lane was claimed since"
    watch.on_event(claimed)
    now[0] += PAST_SECONDS / 2
    watch.on_event(claimed)
    assert trouble()
    watch.on_event(RESTARTED)
    watch.on_event(claimed)
    now[0] += PAST_SECONDS / 2
    assert trouble(), "it has failed again"
    now[0] += PAST_SECONDS / 2
    assert trouble() is None


def test_a_source_that_cannot_be_settled_shows_beside_a_leader_that_delivers(served: Served) -> None:
    served.emit(LED)
    served.emit(Unsettled(pipeline=NAME, code="source.unavailable", message="read-only", remedy="make it writable"))
    served.emit(Delivered(pipeline=NAME, lane="main", changes=1, position=2))
    assert ("penstock_error", ("source.unavailable",)) in served.samples()
    status, _, text = served.get("/healthz")
    assert (status, json.loads(text)["pipelines"][NAME]["trouble"]) == (200, "source.unavailable: read-only")
    served.emit(StandingBy(pipeline=NAME, holder="another"))
    assert "penstock_error" not in {name for name, _ in served.samples()}, "that is the other one's now"
    served.emit(LED)
    assert "penstock_error" in {name for name, _ in served.samples()}
    served.emit(SettledAgain(pipeline=NAME))
    assert "penstock_error" not in {name for name, _ in served.samples()}


def test_a_state_that_does_not_work_shows_until_it_does_again_whoever_leads(served: Served) -> None:
    served.emit(LED)
    served.emit(StateAway(pipeline=NAME, code="state.unavailable", message="the disk is full", remedy="make room"))
    served.emit(TermGone(pipeline=NAME, epoch=1, reason="gone"))
    assert ("penstock_error", ("state.unavailable",)) in served.samples()
    _, _, text = served.get("/healthz")
    assert json.loads(text)["pipelines"][NAME]["trouble"] == "state.unavailable: the disk is full"
    served.emit(StateBack(pipeline=NAME))
    assert "penstock_error" not in {name for name, _ in served.samples()}


def test_what_a_worker_elsewhere_has_recorded_shows_though_no_event_tells_of_it(
    shop: Shop, pipeline: Pipeline, served: Served
) -> None:
    shop.sell(3)
    reach(pipeline, 1, trouble={"code": "sink.failing", "message": "status 503", "remedy": ""})
    served.emit(LED)
    assert ("penstock_error", ("sink.failing",)) in served.samples()
    status, _, text = served.get("/healthz")
    found = json.loads(text)["pipelines"][NAME]
    assert (status, found["reason"], found["trouble"]) == (200, None, "sink.failing: status 503")


def test_progress_shows_also_where_no_event_tells_of_it(shop: Shop, pipeline: Pipeline) -> None:
    now = [0.0]
    watch = Watch([pipeline], lambda: now[0])
    shop.sell(3)
    reach(pipeline, 1)
    watch.sights()
    now[0] = 100.0
    reach(pipeline, 2)
    [seen] = watch.sights()
    assert seen.tally.moved_at == 100.0


def test_nobody_waits_for_long_behind_one_whose_look_takes_long(
    shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LATE_SECONDS", 0.05)
    answers, watch = threading.Event(), Watch([pipeline])
    monkeypatch.setattr(SqliteRetention, "readers", lambda self: answers.wait(PATIENCE) and ())
    watch.on_event(LED)
    looking = threading.Thread(target=watch.sights)
    looking.start()
    until(watch._looking.locked)
    [seen] = watch.sights()
    assert "have not answered yet" in (ailment(seen) or "")
    answers.set()
    looking.join()
    assert ailment(watch.sights()[0]) is None


def test_a_look_that_hangs_is_no_health_once_the_last_one_is_old(
    shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LATE_SECONDS", 0.05)
    now, answers = [0.0], threading.Event()
    watch = Watch([pipeline], lambda: now[0])
    watch.on_event(LED)
    assert health(watch)[0] == 200
    monkeypatch.setattr(SqliteRetention, "readers", lambda self: answers.wait(PATIENCE) and ())
    now[0] = 29.0
    looking = threading.Thread(target=watch.sights)
    looking.start()
    until(watch._looking.locked)
    assert health(watch)[0] == 200, "it may only be slow"
    now[0] = 31.0
    code, told = health(watch)
    assert (code, "last answered 31 s ago" in json.dumps(told)) == (503, True)
    answers.set()
    looking.join()
    assert health(watch)[0] == 200


def test_a_leader_whose_backlog_is_unknown_is_stalled_by_the_age_of_its_oldest_change(pipeline: Pipeline) -> None:
    now = datetime.now(UTC)
    at = summarise(pipeline, PipelineState(), {LANE: Backlog(9, None, now - timedelta(seconds=90))}, now)
    seen = Sight(61.0, Tally("leading"), 61.0, at, ())
    assert ailment(seen) == "stalled: changes wait, none was delivered for 61 s"


def test_a_look_that_failed_is_no_progress_nor_are_positions_of_rows_that_go_back(pipeline: Pipeline) -> None:
    at = summarise(pipeline, PipelineState(), {LANE: Backlog(9, 4, None)}, datetime.now(UTC))
    on, further, away = (replace(at, marks=marks) for marks in ({LANE: 3}, {LANE: 4}, {}))
    assert watching._has_moved(pipeline, on, further)
    assert watching._has_moved(pipeline, on, replace(at, marks={LANE: 3, "snapshot:1": 3}))
    assert not watching._has_moved(pipeline, on, away)
    assert not watching._has_moved(pipeline, away, on)
    marks = replace(pipeline, source=MarkSource(database="box.db"))
    assert not watching._has_moved(marks, on, further)
    assert watching._has_moved(marks, on, replace(on, backlog=3))


def test_whether_the_process_lives_is_told_without_a_look_at_anything(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "observe", None)
    assert served.get("/livez")[0] == 200


def test_the_stores_are_asked_once_a_second_however_many_ask(shop: Shop, pipeline: Pipeline) -> None:
    now = [0.0]
    watch = Watch([pipeline], lambda: now[0])
    assert watch.sights()[0].status.head == 0
    shop.sell(1)
    assert watch.sights()[0].status.head == 0
    now[0] += FRESH_SECONDS
    assert watch.sights()[0].status.head == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:9464", ("::1", 9464)), ("host:80", ("host", 80))],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "0", "65536", "a:b", ":80", "::1:80", "80/metrics"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="not an address"):
        address(text)


def test_a_port_that_is_taken_is_told_before_anything_starts(served: Served, pipeline: Pipeline) -> None:
    with pytest.raises(ConfigInvalid, match="Address already in use"), serving([pipeline], str(served.port)):
        pass
