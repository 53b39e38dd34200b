"""A process that starts while the server of its state is away waits for it, and says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from deadline import PATIENCE, until
from penstock.coordinators.postgres import address
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.errors import EngineLost, StateRefused
from penstock.event import Event, Led, StateAway, StateBack
from penstock.metrics.health import ailment
from penstock.metrics.watch import Watch
from penstock.pipeline import Pipeline
from penstock.running import run as running
from penstock.running.pipeline_run import PipelineRun
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.synthetic import SyntheticSource
from servers.postgres import PostgresServer
from test_running import BrokenEngine

ELSEWHERE = "postgresql://u@127.0.0.1:1/x"


class ClosedEngine(BrokenEngine):
    """One that can be closed."""

    def close(self) -> None:
        return None


class Process:
    """One pipeline as a process carries it, without Spark."""

    def __init__(self, state: Any) -> None:
        self.pipeline, self.stop, self.told = Pipeline("p", SyntheticSource(rate=1.0), DiscardSink(), state), Flag(), list[Event]()
        self.watch = Watch([self.pipeline])
        self.run = PipelineRun(self.pipeline, None, self.stop, self.on_event)

    def on_event(self, event: Event) -> None:
        self.told.append(event)
        self.watch.on_event(event)

    def has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.told)

    @contextmanager
    def carried(self) -> Iterator[None]:
        with self.run.entered():
            thread = Thread(target=self.run.run, args=(BrokenEngine(),), daemon=True)
            thread.start()
            try:
                yield
            finally:
                self.stop.set()
                thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_state_whose_server_is_away_is_waited_for_and_log_and_health_say_so(breakable_postgres: PostgresServer) -> None:
    process = Process(PostgresCoordinator(f"{breakable_postgres.create_database()}?connect_timeout=60"))
    breakable_postgres.stop()
    with process.carried():
        [away] = [event for event in process.told if isinstance(event, StateAway)]
        assert away.code == "state.unavailable"
        assert away.remedy == "check that the server runs and is reachable from this machine"
        [sight] = process.watch.sights()
        assert (sight.trouble or "").startswith("state.unavailable: cannot use the state in postgresql://")
        assert ailment(sight) == f"starting: this process does not run the pipeline; last error: {sight.trouble}"
        breakable_postgres.start()
        until(lambda: process.has(Led))
        assert process.has(StateBack)
    assert process.run.error is None
    told = [event.message for event in process.told if isinstance(event, StateAway)]
    assert len(told) == len(set(told)), "each reason once; a server that starts up has another"


def test_who_waits_for_the_state_ends_when_asked_to_and_has_not_failed() -> None:
    process = Process(PostgresCoordinator(ELSEWHERE))
    with process.carried():
        assert process.has(StateAway)
    assert process.run.error is None
    assert {type(event) for event in process.told} == {StateAway}


def refused(server: PostgresServer) -> dict[str, str]:
    base = server.create_database()
    return {
        base.replace(server.password, "wrong"): 'password authentication failed for user "postgres"',
        base.replace("//postgres:", "//somebody:"): 'password authentication failed for user "somebody"',
        f"{base}_gone": 'database "test_.*_gone" does not exist',
        f"{base}?sslmode=require": "server does not support SSL",
    }


def test_a_wrong_password_and_a_database_that_is_not_there_are_errors_at_once(postgres_server: PostgresServer) -> None:
    for dsn, said in refused(postgres_server).items():
        process = Process(PostgresCoordinator(f"{dsn}{'&' if '?' in dsn else '?'}connect_timeout=60"))
        with pytest.raises(StateRefused, match=rf"{said}.*correct user, password and database"), process.run.entered():
            raise AssertionError("it has entered")
        assert [type(event).__name__ for event in process.told] == ["Halted"]


def test_a_server_that_refuses_counts_only_if_no_other_one_of_the_address_may_still_come() -> None:
    refusal = 'connection to server at "a", port 1 failed: FATAL:  password authentication failed for user "u"'
    assert address.is_refusal(refusal)
    both = "connection failed: {0}\nMultiple connection attempts failed. All failures were:\n- host: 'a': {0}\n- host: 'b': {1}"
    assert address.is_refusal(both.format(refusal, refusal))
    assert not address.is_refusal(both.format(refusal, "Connection refused"))
    for passing in ("the database system is starting up", "sorry, too many clients already", "Connection refused"):
        assert not address.is_refusal(f'connection to server at "a", port 1 failed: FATAL:  {passing}')


def test_a_state_file_that_is_locked_is_waited_for(tmp_path: Path) -> None:
    process = Process(SqliteCoordinator(str(tmp_path / "state.db")))
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        with process.carried():
            assert process.has(StateAway)
            other.execute("rollback")
            until(lambda: process.has(Led))
    assert process.run.error is None


def test_a_folder_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    state = SqliteCoordinator(str(tmp_path / "no folder" / "state.db"))
    with pytest.raises(StateRefused, match=r"unable to open|No such file"), Process(state).run.entered():
        raise AssertionError("it has entered")


def test_a_path_through_a_file_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = SqliteCoordinator(str(tmp_path / "file" / "state.db"))
    with pytest.raises(StateRefused, match="Not a directory"), Process(state).run.entered():
        raise AssertionError("it has entered")


def test_who_waits_for_the_state_learns_that_the_engine_is_lost() -> None:
    class LostEngine(BrokenEngine):
        def lost(self) -> EngineLost:
            return EngineLost("the JVM is gone")

    process = Process(PostgresCoordinator(f"{ELSEWHERE}?connect_timeout=2"))
    with process.run.entered():
        process.run.run(LostEngine())
    assert isinstance(process.run.error, EngineLost)


def test_a_pipeline_whose_state_is_away_keeps_no_other_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, told = Flag(), list[Event]()

    def on_event(event: Event) -> None:
        told.append(event)
        if isinstance(event, Led):
            stop.set()

    monkeypatch.setattr(running, "Engine", lambda *_: ClosedEngine())
    states = {"away": PostgresCoordinator(ELSEWHERE), "here": SqliteCoordinator(str(tmp_path / "state.db"))}
    running.run(
        *(Pipeline(name, SyntheticSource(rate=1.0), DiscardSink(), state) for name, state in states.items()),
        stop=stop,
        observer=on_event,
    )
    assert {(type(event), event.pipeline) for event in told} >= {(StateAway, "away"), (Led, "here")}
