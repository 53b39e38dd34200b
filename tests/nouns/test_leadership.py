"""What a leader does when its store turns out to be none, or its term was lost before anybody looked."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deadline import PATIENCE, until
from penstock.coordinator import PipelineState, Term
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.errors import StateInvalid
from penstock.running.leadership import Leadership


class Prompt(SqliteCoordinator):
    """Its terms are long, and renewed often."""

    renewal = 0.1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


class Clock:
    """Time that also goes on when a test says so."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leadership(path: Path, clock: Clock) -> Iterator[Leadership]:
    made = Leadership(Prompt(str(path), ttl=PATIENCE, clock=clock), "orders", "here")
    made.enter()
    made.start()
    yield made
    made.leave()


def garble(path: Path) -> None:
    """In place, as a disk does it."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with name.open("r+b") as file:
            file.write(b"\xa5" * os.path.getsize(name))


def test_a_store_that_is_damaged_ends_the_term_and_is_told(path: Path, leadership: Leadership) -> None:
    assert leadership.await_term(PATIENCE)
    garble(path)
    until(leadership.is_lost)
    leadership.let_go()
    with pytest.raises(StateInvalid):
        until(lambda: leadership.await_term(0.1))


def test_a_term_that_is_lost_before_anybody_looked_is_followed_by_another(path: Path, leadership: Leadership, clock: Clock) -> None:
    until(leadership.is_held)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update terms set epoch = 7, seat = 'a rival', holder = 'a rival'")
    until(leadership.is_lost)

    def has_seen_the_rival() -> bool:
        assert leadership.await_term(0.05) is None
        return leadership._candidate._sighting.epoch == 7  # type: ignore[union-attr]

    until(has_seen_the_rival)
    clock.ahead += PATIENCE  # the rival never renews
    assert until(lambda: leadership.await_term(1.0)).epoch == 8


class Asked(Prompt):
    """Counts how often it was asked how things stand."""

    times = 0

    def pipeline_state(self, pipeline: str) -> PipelineState:
        type(self).times += 1
        return super().pipeline_state(pipeline)


class Observed(Leadership):
    """Notes what is known of the term before at the moment when a term can be seen."""

    known: list[int | None]

    @property
    def _term(self) -> Term | None:
        return self._seen

    @_term.setter
    def _term(self, term: Term | None) -> None:
        self._seen = term
        if term:
            self.known = [*getattr(self, "known", []), self.epoch_before]


def test_whose_term_was_the_last_is_asked_until_one_is_won_and_known_before_that_is_seen(path: Path, clock: Clock) -> None:
    with closing(SqliteCoordinator(str(path)).candidate("orders", "before")) as candidate:
        assert candidate.campaign()
        candidate.resign()
    leadership = Observed(Asked(str(path), ttl=PATIENCE, clock=clock), "orders", "here", asks=True)
    leadership.enter()
    leadership.start()
    try:
        assert until(lambda: leadership.await_term(1.0)).epoch == 2
        times = Asked.times
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update terms set epoch = 7, seat = 'a rival', holder = 'a rival'")
        until(leadership.is_lost)
        leadership.let_go()
        until(lambda: leadership._candidate._sighting.epoch == 7)  # type: ignore[union-attr]
        clock.ahead += PATIENCE  # the rival never renews
        assert until(lambda: leadership.await_term(1.0)).epoch == 8
    finally:
        leadership.leave()
    assert leadership.known == [1, None]
    assert Asked.times == times
