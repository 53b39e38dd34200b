"""Any history of terms, claims and advances, against a model: the watermark only moves forward, and only by the current claim."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from examples import examples
from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateLost, TermLost

LANE = Lane("main")
WHO = st.sampled_from(["a", "b"])


@dataclass
class Held:
    """A claim that was made and not given back yet."""

    term: Term
    attempt: int
    context: AbstractContextManager[Any]
    claim: Any


class Fencing(RuleBasedStateMachine):
    """Two candidates, any number of claims; `current` and `mine` are what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.pipeline = tempfile.TemporaryDirectory(), "p"
        self.coordinator = self.opened()
        self.candidates = {who: self.coordinator.candidate(self.pipeline, who) for who in ("a", "b")}
        self.terms: list[Term] = []
        self.current: Term | None = None
        self.registered = (0, -1)
        self.held: list[Held] = []
        self.position: int | None = None
        self.delivered = 0

    def opened(self) -> Any:
        return SqliteCoordinator(f"{self.folder.name}/state.db", ttl=1e9, grace=0.0)

    def teardown(self) -> None:
        for held in self.held:
            held.context.__exit__(None, None, None)
        for candidate in self.candidates.values():
            candidate.close()
        self.folder.cleanup()

    @rule(who=WHO)
    def campaign(self, who: str) -> None:
        term = self.candidates[who].campaign()
        if self.current and self.current.holder != who:
            assert term is None
            return
        assert term
        assert all(term.epoch > old.epoch for old in self.terms)
        self.terms.append(term)
        self.current = term

    @rule(who=WHO)
    def resign(self, who: str) -> None:
        self.candidates[who].resign()
        if self.current and self.current.holder == who:
            self.current = None

    @rule(who=WHO)
    def renew(self, who: str) -> None:
        if self.current and self.current.holder == who:
            self.candidates[who].renew()
        else:
            with pytest.raises(TermLost):
                self.candidates[who].renew()

    @precondition(lambda self: self.terms)
    @rule(data=st.data(), position=st.integers(0, 50))
    def place(self, data: st.DataObject, position: int) -> None:
        term = data.draw(st.sampled_from(self.terms))
        if term == self.current:
            self.coordinator.place(term, {LANE: _mark(position)})
            self.registered = self.registered if self.position is not None else (term.epoch, -1)
            self.position = position
        else:
            with pytest.raises(TermLost):
                self.coordinator.place(term, {LANE: _mark(position)})

    @precondition(lambda self: self.terms)
    @rule(data=st.data(), attempt=st.integers(0, 5))
    def claim(self, data: st.DataObject, attempt: int) -> None:
        term = data.draw(st.sampled_from(self.terms))
        if any(held.term == term for held in self.held):
            return  # it would rightly wait for ever
        context = self.coordinator.claim(term, LANE, attempt)
        if self.position is None:
            with pytest.raises(StateLost):
                context.__enter__()
        elif term != self.current or (term.epoch, attempt) <= self.registered:
            with pytest.raises(TermLost):
                context.__enter__()
        else:
            made = context.__enter__()
            assert made.watermark.position == self.position
            self.registered = (term.epoch, attempt)
            self.held.append(Held(term, attempt, context, made))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), min_size=1, max_size=3))
    def advance(self, data: st.DataObject, steps: list[tuple[int, int]]) -> None:
        held = data.draw(st.sampled_from(self.held))
        for position, changes in steps:
            self._advance(held, position, changes)
            self.the_store_agrees()

    def _advance(self, held: Held, position: int, changes: int) -> None:
        if held.term == self.current and (held.term.epoch, held.attempt) == self.registered:
            held.claim.advance(_mark(position), Tally(changes, 1.0))
            assert self.position is not None
            self.position = max(self.position, position)
            self.delivered += changes
        else:
            with pytest.raises(TermLost):
                held.claim.advance(_mark(position), Tally(changes, 1.0))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        held.context.__exit__(None, None, None)

    @invariant()
    def the_store_agrees(self) -> None:
        standing = self.coordinator.pipeline_state(self.pipeline)
        assert standing.is_held == (self.current is not None)
        assert standing.delivered == self.delivered
        assert standing.watermarks.get(LANE) == (None if self.position is None else _mark(self.position))


def _mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position)


class PostgresFencing(Fencing):
    """The same in a database that all histories share."""

    dsn = ""

    def opened(self) -> Any:
        self.pipeline = f"p-{uuid.uuid4()}"
        return PostgresCoordinator(f"{self.dsn}?connect_timeout=900", ttl=1e9, grace=0.0)


@pytest.fixture(scope="module")
def database(postgres_of_module: str) -> None:
    PostgresFencing.dsn = postgres_of_module


TestFencing = Fencing.TestCase
TestFencing.settings = settings(max_examples=examples(60), stateful_step_count=40)

TestPostgresFencing = pytest.mark.usefixtures("database")(PostgresFencing.TestCase)
TestPostgresFencing.settings = settings(max_examples=examples(8), stateful_step_count=40)
