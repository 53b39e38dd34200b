"""A pipeline whose state is in Postgres: two processes, a kill, and a server that goes away and comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event, Thread

import pytest

from deadline import PATIENCE, until
from fix_rig import Rig, Sampler
from penstock.testing import oracle
from penstock.testing.postgres import PostgresServer
from program import send

AWAY = 7.0
"""Seconds that the server is away: longer than a term."""


@dataclass
class Story:
    """What happened to one pipeline."""

    rig: Rig
    password: str
    marks: list[oracle.Mark] = field(default_factory=list)
    takeover: float = 0.0
    said: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def tell(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "penstock", command, str(self.rig.file), *options]
        self.said[command] = done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, breakable_postgres: PostgresServer) -> Iterator[Story]:
    dsn = breakable_postgres.create_database()
    with Rig(tmp_path_factory.mktemp("postgres"), state=f"{dsn}?connect_timeout=20") as rig:
        told = Story(rig, breakable_postgres.password)
        rig.start(), rig.start()
        until(lambda: any(one.events("LaneClaimed") for one in rig.programs), what=rig.tails)
        standby = next(one for one in rig.programs if one is not rig.leader())
        standby.until_event("StandingBy")
        leaving = Event()
        seller = Thread(target=_sell, args=(rig, leaving))
        with Sampler(rig) as sampler:
            seller.start()
            try:
                told.takeover = _kill_the_leader(rig)
                _lose_the_server(rig, breakable_postgres)
                until(lambda: json.loads(told.tell("status", "--json").stdout)["state"] == "leading")
                told.tell("doctor", "--json")
                told.tell("validate")
            finally:
                leaving.set()
                seller.join()
            rig.until_settled()
        told.marks = sampler.marks
        yield told


def _sell(rig: Rig, leaving: Event) -> None:
    while not leaving.wait(0.1):
        rig.shop.sell(1)


def _kill_the_leader(rig: Rig) -> float:
    until(lambda: len(rig.positions()) > 20)
    leader, epoch, killed_at = until(rig.leader), rig.standing().epoch, time.time()
    send(signal.SIGKILL, leader.tree()[:1])
    first = until(lambda: next((one for one in rig.deliveries() if one.epoch > epoch), None))
    leader.process.wait(10)
    leader.assert_gone()
    return first.at - killed_at


def _lose_the_server(rig: Rig, server: PostgresServer) -> None:
    """Away for longer than a term, then a crash."""
    for end, away in ((server.stop, AWAY), (server.kill, 0.0)):
        end()
        time.sleep(away)  # the length of the fault
        server.start()
        behind = rig.shop.head
        until(lambda behind=behind: rig.position >= behind, what=rig.tails)


def test_a_standby_on_the_same_database_takes_over(story: Story, note: Callable[[str], None]) -> None:
    note(f"{story.takeover:.2f} s from the kill to the standby's first change")
    assert story.rig.standing().epoch >= 2


def test_nothing_is_lost_or_out_of_order_and_nobody_halted_though_the_server_was_away_and_crashed(story: Story) -> None:
    assert story.rig.breaches(story.marks) == []
    assert [program.events("Halted") for program in story.rig.programs] == [[], []]
    assert story.rig.leader() is not None


def test_commands_work_with_that_state_and_no_password_shows(story: Story) -> None:
    facts = json.loads(story.said["status"].stdout)
    assert (facts["state"], facts["error"]) == ("leading", None)
    checks = {one["check"]: one["result"] for one in json.loads(story.said["doctor"].stdout)["checks"]}
    assert (checks["state"], checks["leader"]) == ("ok", "ok")
    assert story.tell("rewind", "--to", "beginning", "--yes").returncode == 1
    assert "term.held" in story.said["rewind"].stderr
    assert story.rig.leader().terminate() == 0
    assert story.tell("rewind", "--to", "now", "--yes").returncode == 0
    epoch = story.rig.standing().epoch
    assert story.tell("forget", "--yes").returncode == 0
    assert story.rig.standing().watermarks == {}
    assert story.rig.standing().epoch > epoch
    outputs = [f"{one.stdout}{one.stderr}" for one in story.said.values()] + [one.said() for one in story.rig.programs]
    assert all(story.password not in output for output in outputs)
    assert "postgresql://postgres:***@127.0.0.1" in story.said["validate"].stdout
