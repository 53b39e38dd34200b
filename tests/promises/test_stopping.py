"""One process from its cold start to SIGTERM, and again to Ctrl-C: what was delivered is recorded, and nothing is left behind."""

from __future__ import annotations

import os
import pty
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from fix_rig import Rig
from penstock.testing.request import Request
from program import Program, status


@dataclass
class Story:
    """What happened, for the tests to judge."""

    rig: Rig
    cold_seconds: float = 0.0
    first: list[Request] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)

    def run_until_terminated(self) -> None:
        """From a cold start to SIGTERM."""
        position, began = self.rig.shop.sell(1), time.monotonic()
        program = self.rig.start()
        self.rig.until_delivered(position)
        self.cold_seconds, self.first = time.monotonic() - began, self.rig.receiver.requests
        self.rig.until_delivered(self.rig.shop.sell(500))
        _, [self.status["during"]] = status(self.rig.file)
        self.stop_in_the_middle(program, "SIGTERM", lambda: program.process.send_signal(signal.SIGTERM))
        _, [self.status["after"]] = status(self.rig.file)

    def run_until_interrupted(self) -> None:
        """On a terminal of its own, to Ctrl-C."""
        terminal, ours = pty.openpty()
        try:
            self.stop_in_the_middle(self.rig.start(tty=ours), "Ctrl-C", lambda: os.write(terminal, b"\x03"))
        finally:
            os.close(terminal)
            os.close(ours)

    def stop_in_the_middle(self, program: Program, how: str, stop: Callable[[], object]) -> None:
        """End the process while requests are under way."""
        self.rig.receiver.turn(fail_rate=1.0)
        self.rig.shop.sell(1000)
        self.rig.receiver.turn(fail_rate=0.0, slow=0.5)
        self.rig.until_delivered(self.rig.position + 30)
        stop()
        self.exits[how] = program.exit_code()
        self.rig.receiver.turn(slow=0.0)
        self.taken[how], self.recorded[how] = max(self.rig.positions()), self.rig.position


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Rig(tmp_path_factory.mktemp("stopping"), timeout="5s") as rig:
        told = Story(rig)
        told.run_until_terminated()
        told.run_until_interrupted()
        yield told


def test_the_first_change_comes_by_itself_and_whole(story, note):
    note(f"{story.cold_seconds:.1f} s from the start of the process to the first change")
    [request] = story.first
    [change] = request.changes()
    assert {name: change.get(name) for name in ("position", "previous", "table", "op", "before")} == {
        "position": 1,
        "previous": None,
        "table": "orders",
        "op": "insert",
        "before": None,
    }
    assert request.headers["penstock-pipeline"] == "shop"
    assert request.headers["penstock-epoch"] == "1"


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_a_process_that_is_asked_to_stop_exits_with_0_and_has_recorded_all_that_was_taken(story, how):
    assert story.exits[how] == 0
    assert story.recorded[how] == story.taken[how]


def test_the_stop_came_while_changes_were_waiting(story):
    assert story.status["after"]["backlog"] > 0
    assert story.rig.position < story.rig.shop.head


def test_nothing_is_repeated_after_a_clean_stop(story):
    assert story.rig.positions() == list(range(1, story.taken["Ctrl-C"] + 1))


def test_status_tells_of_a_running_pipeline(story):
    seen = story.status["during"]
    assert (seen["name"], seen["mode"], seen["state"], seen["epoch"]) == ("shop", "live", "leading", 1)
    assert str(story.rig.programs[0].pid) in seen["holder"]
    assert seen["head"] == 501
    assert seen["error"] is None
    assert 0 < seen["delivered"] <= 501


def test_status_tells_of_a_stopped_pipeline(story):
    seen = story.status["after"]
    assert (seen["state"], seen["holder"], seen["error"], seen["rate"]) == ("stopped", None, None, 0.0)
    assert seen["position"] == seen["delivered"] == story.taken["SIGTERM"]
    assert seen["backlog"] == seen["head"] - seen["position"]
    assert seen["lag_seconds"] > 0
    assert seen["oldest_undelivered"]
