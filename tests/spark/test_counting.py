"""What a store counts of a lane whose writer is killed again and again: every change once, whatever became of it."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.change import Change, Op, from_batch, to_batch
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.errors import DeliveryExhausted
from penstock.pipeline import Pipeline
from penstock.poison.condemned import Condemned
from penstock.retry import Retry
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.rows import Mark
from penstock.spark.task_spec import TaskSpec
from penstock.spark.writer import LaneWriter

KEYS = 3
ERROR = DeliveryExhausted("refused")


@dataclass
class Sink:
    """Sends one change at a time, when it is asked to, and refuses those that are bad."""

    bad: frozenset[int]
    retry: Retry
    keeps_watermark: bool = False

    def open(self, assignment: Any) -> Sink:
        self.poison, self.held, self.last = assignment.poison, deque[Change](), None
        return self

    def offer(self, changes: Any, wait: float) -> bool:
        self.held += from_batch(changes)
        return True

    def send(self, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            change = self.held.popleft()
            if self.poison.sift([change]) and change.position in self.bad:
                self.poison.condemn_all([Condemned(change, ERROR, is_refused=True)])
            self.last = change

    def delivered(self) -> Change | None:
        return self.last

    def drain(self, wait: float) -> bool:
        return not self.held

    def close(self) -> None:
        return None


class Lane:
    """Changes of a few keys, and a writer of them that can be killed at any moment."""

    def __init__(self, folder: str, sink: Sink, positions: int, ordinals: int) -> None:
        self.source, self.state, self.sink = SyntheticSource(), SqliteCoordinator(f"{folder}/state.db"), sink
        self.changes = [
            Change(position, Op.INSERT, "t", f'{{"id":{position % KEYS}}}', ordinal=ordinal)
            for position in range(1, positions + 1)
            for ordinal in (range(1, ordinals + 1) if ordinals else [None])
        ]
        self._stack, self._attempt = ExitStack(), 0
        self._candidate = self.state.candidate("p", "me")
        self._term = self._candidate.campaign()
        assert self._term
        self.state.place(self._term, {LANE: Watermark(self.source.begin(LANE, "beginning"), 0)})
        self._spec = TaskSpec(Pipeline("p", self.source, sink, self.state), self._term, folder, "query", 300.0)
        self.begin()

    def begin(self) -> None:
        self._attempt += 1
        assert self._term
        claim = self._stack.enter_context(self.state.claim(self._term, LANE, self._attempt))
        reached = claim.watermark
        self._left = deque(change for change in self.changes if change.position > reached.position)
        self.writer = LaneWriter(self._spec, self._attempt, Mark(LANE, reached.position, reached.cursor), claim)
        self._position = reached.position

    def hand(self, count: int) -> None:
        run = [self._left.popleft() for _ in range(min(count, len(self._left)))]
        if run:
            self._position = run[-1].position
            self.writer._hand(to_batch(run))

    def mark(self) -> None:
        if not self._left or self._left[0].position > self._position:  # nothing of that position is still to come
            self.writer._mark(self._position, self.source.begin(LANE, str(self._position)))

    def act(self, deed: str, count: int) -> None:
        match deed:
            case "hand":
                self.hand(count)
            case "send":
                self.sink.send(count)
            case "mark":
                self.mark()
            case "record":
                self.writer._record()
            case "park":
                self.writer._poison.park()
            case _:
                self._stack.close()
                self.begin()

    def end(self) -> None:
        for deed in ("hand", "mark", "send", "record"):
            self.act(deed, len(self.changes))
        self._stack.close()
        self._candidate.close()


DEEDS = st.tuples(st.sampled_from(["hand", "send", "send", "mark", "record", "park", "kill"]), st.integers(1, 6))


@pytest.mark.parametrize("ordinals", [0, 2])
@pytest.mark.parametrize(("then", "keys"), [("dead-letter", "wait"), ("dead-letter", "go-on"), ("drop", "wait")])
@settings(max_examples=examples(25), deadline=None)
@given(deeds=st.lists(DEEDS, max_size=40), bad=st.frozensets(st.integers(1, 12), max_size=5))
def test_every_change_counts_once_whenever_the_writer_is_killed(
    then: Any, keys: Any, ordinals: int, deeds: list[tuple[str, int]], bad: frozenset[int]
) -> None:
    with TemporaryDirectory() as folder:
        lane = Lane(folder, Sink(bad, Retry(then=then, keys=keys)), positions=12, ordinals=ordinals)
        for deed, count in deeds:
            lane.act(deed, count)
        lane.end()
        standing = lane.state.pipeline_state("p")
    first = {key: min(found) for key in range(KEYS) if (found := [at for at in bad if at % KEYS == key])}
    behind = [one for one in lane.changes if one.position > first.get(one.position % KEYS, 99)]
    refused = [one for one in lane.changes if one.position in bad]
    parked = {one.place for one in refused} | ({one.place for one in behind} if keys == "wait" and then != "drop" else set())
    expected = (len(parked), 0) if then == "dead-letter" else (0, len(refused))
    assert (standing.dead, standing.dropped) == expected
    assert standing.delivered == len(lane.changes) - sum(expected)
    assert standing.passed == (len([one for one in behind if one.position not in bad]) if keys == "go-on" else 0)
