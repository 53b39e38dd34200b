"""Two processes with three pipelines: state in Postgres, a source in Postgres, state in Kafka; a kill, and servers that go away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread

import pytest
from orders import Orders

from deadline import PATIENCE, until
from fix_rig import Rig, Sampler
from penstock.coordinators.kafka.log import GONE_SECONDS
from penstock.testing import oracle
from penstock.testing.receiver import ReceiverProcess
from program import Program, send
from servers.broker import Broker
from servers.postgres import PostgresServer

SESSION = 6
"""Seconds of a session in Kafka, the shortest that brokers allow: a fault outlasts it."""


@dataclass
class Story:
    """What happened."""

    rig: Rig
    remote: Rig
    orders: Orders
    password: str
    survivor: Program
    marks: list[oracle.Reached] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    exit: int | None = None
    said: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def run(self, command: str, *options: str, name: str | None = None) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "penstock", command, str(self.rig.file), *options]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.said[name or command] = done
        return done


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, breakable_postgres: PostgresServer, breakable_broker: Broker
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("away")
    state = f"{breakable_postgres.create_database()}?connect_timeout=60"
    in_kafka = f"kafka://{breakable_broker.servers}/{folder.name}?session-timeout={SESSION}s"
    with (
        ReceiverProcess(folder / "requests") as receiver,
        Rig(folder / "remote", "remote", state=in_kafka) as remote,
        Rig(folder / "shop", state=state) as rig,
    ):
        orders = Orders(folder, breakable_postgres, receiver)
        for _ in range(2):
            remote.programs.append(rig.start(remote.file, orders.file))
        with Sampler(rig) as sampler:
            with selling(rig):
                made = Story(rig, remote, orders, breakable_postgres.password, _kill_the_leader(rig, remote))
                _lose_postgres(made, breakable_postgres)
            rig.until_settled()
        made.marks = sampler.marks
        _lose_kafka(made, breakable_broker)
        _command(made)
        yield made


def _kill_the_leader(rig: Rig, remote: Rig) -> Program:
    """Answers the other one, once it leads in its place."""
    leader = until(rig.leader, what=rig.tails)
    [standby] = [one for one in rig.programs if one is not leader]
    standby.until_event("StandingBy", pipeline="shop")
    rig.until_delivered(rig.shop.sell(20))
    remote.until_delivered(remote.shop.sell(20))
    send(signal.SIGKILL, leader.tree()[:1])
    leader.process.wait(PATIENCE)
    standby.hold_back()
    leader.assert_gone()
    for one in (rig, remote):
        one.until_delivered(one.shop.sell(1))
        until(lambda one=one: one.leader() is standby, what=one.tails)
    return standby


def _lose_postgres(story: Story, server: PostgresServer) -> None:
    """It is away for longer than a term, then it crashes."""
    story.orders.before_the_restart(story.survivor)
    story.epochs["before"] = story.rig.pipeline_state().epoch
    server.stop()
    story.rig.outlast(story.survivor)
    story.survivor.until_event("TermGone", pipeline="shop")
    _return(story.rig, server)
    story.orders.after_the_restart(story.survivor)
    server.kill()
    _return(story.rig, server)
    story.epochs["after"] = story.rig.pipeline_state().epoch


def _return(rig: Rig, server: PostgresServer) -> None:
    server.start()
    behind = rig.shop.head
    until(lambda: rig.position >= behind, what=rig.tails)


@contextmanager
def selling(rig: Rig) -> Iterator[None]:
    """Changes are made all the while."""
    leaving = Event()
    seller = Thread(target=_sell, args=(rig, leaving), name="seller", daemon=True)
    seller.start()
    try:
        yield
    finally:
        leaving.set()
        seller.join()


def _sell(rig: Rig, leaving: Event) -> None:
    while not leaving.wait(0.1):
        rig.shop.sell(1)


def _lose_kafka(story: Story, broker: Broker) -> None:
    """It is away for longer than a session, and for longer than a state topic that brokers do not know is waited for."""
    gone = len([one for one in story.survivor.events("TermGone") if one["pipeline"] == "remote"])
    broker.kill()
    story.survivor.until_event("TermGone", count=gone + 1, pipeline="remote")
    story.remote.shop.sell(20)
    ends_at = time.monotonic() + SESSION + GONE_SECONDS
    until(lambda: story.remote.pipeline_state() and time.monotonic() > ends_at)  # each look asks the brokers and is not answered
    broker.start()
    story.remote.until_settled()


def _command(story: Story) -> None:
    """All commands, with a leader and without one."""
    until(lambda: json.loads(story.run("status", "--json").stdout)["state"] == "leading")
    story.run("doctor", "--json")
    story.run("validate")
    story.run("rewind", "--to", "beginning", "--yes", name="rewind while it leads")
    story.exit = story.survivor.terminate()
    story.run("rewind", "--to", "now", "--yes")
    story.epochs["rewound"] = story.rig.pipeline_state().epoch
    story.run("forget", "--yes")
    story.epochs["forgotten"] = story.rig.pipeline_state().epoch


def test_a_standby_on_the_same_database_takes_over(story: Story) -> None:
    """It follows from the leader's death alone: a term of silence did not pass for the standby."""
    [dead] = [one for one in story.rig.programs if one is not story.survivor]
    assert dead.events("Led")
    assert story.epochs["before"] >= 2


def test_nothing_is_lost_or_out_of_order_and_nobody_halted_though_the_server_was_away_and_crashed(story: Story) -> None:
    assert story.rig.breaches(story.marks) == []
    assert [program.events("Halted") for program in story.rig.programs] == [[], []]
    assert story.epochs["after"] > story.epochs["before"]
    assert story.exit == 0


def test_brokers_that_are_away_for_longer_than_a_session_are_waited_for(story: Story) -> None:
    assert story.remote.breaches() == []
    assert not story.survivor.events("Halted")
    assert story.exit == 0


def test_what_is_stashed_arrives_in_order_also_through_a_restart_of_postgres(story: Story) -> None:
    orders, seen = story.orders, story.orders.seen
    assert (seen["state"], seen["position"], seen["head"], seen["backlog"]) == ("leading", 54, 54, 0)
    came = {one.position: one.change for one in orders.came()}
    assert sorted(came) == list(range(1, 55))
    first = {"table": "orders", "op": "insert", "key": {"key": "1"}, "after": {"value": '{"n":1}', "headers": [["trace", "abc"]]}}
    assert came[1].items() >= first.items()
    assert (came[2]["table"], came[2]["key"], came[2]["after"]["value"]) == ("files", {"key": {"$blob": "/w=="}}, {"$blob": "AP8="})
    assert (came[3]["op"], came[3]["key"]) == ("delete", {"key": "1"})
    assert came[4]["after"]["value"] == "late"
    assert oracle.order(orders.came()) == []
    assert "rolled back" not in orders.values()


def test_progress_is_reported_once_a_second_at_most_and_each_change_once(story: Story) -> None:
    events = [one for one in story.survivor.events("Delivered") if one["pipeline"] == "orders"]
    assert sum(one["changes"] for one in events) <= 54
    moments = [at for one in events if (at := datetime.fromisoformat(one["at"]).timestamp()) > story.orders.began]
    assert len(moments) <= story.orders.claims + max(moments, default=story.orders.began) - story.orders.began, "reported too often"


def test_commands_work_with_that_state_and_no_password_shows(story: Story) -> None:
    said = story.said
    facts = json.loads(said["status"].stdout)
    assert (facts["state"], facts["error"]) == ("leading", None)
    checks = {one["check"]: one["result"] for one in json.loads(said["doctor"].stdout)["checks"]}
    assert (checks["state"], checks["leader"]) == ("ok", "ok")
    assert said["rewind while it leads"].returncode == 1
    assert "term.held" in said["rewind while it leads"].stderr
    assert (said["rewind"].returncode, said["forget"].returncode) == (0, 0)
    assert story.rig.pipeline_state().watermarks == {}
    assert story.epochs["forgotten"] > story.epochs["rewound"]
    outputs = [f"{one.stdout}{one.stderr}" for one in said.values()] + [one.said() for one in story.rig.programs]
    assert all(story.password not in output for output in outputs)
    assert "postgresql://postgres:***@127.0.0.1" in said["validate"].stdout
