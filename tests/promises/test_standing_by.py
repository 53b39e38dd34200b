"""A second process stands by and takes over at once; both show their health; a process outlives the death of its JVM."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest
from stories import Part, Story, Way, of

from deadline import PATIENCE, until
from fix_rig import TERM, Rig
from penstock.testing import oracle
from program import Program, send, status
from servers.ports import free_ports

LONG = "1h"
"""A term that does not expire while a test waits: only the death of its holder can end it."""


def asked(port: int, path: str) -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):  # nobody listens, or it goes as it is asked
            return 0, ""


def value(port: int, name: str, labels: str = '{pipeline="shop"}') -> float:
    lines = asked(port, "/metrics")[1].splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name}{labels} ")), -1.0)


def shop_of(answer: str) -> dict[str, Any]:
    """What an answer about health says of the shop."""
    found: dict[str, Any] = json.loads(answer)["pipelines"]["shop"]
    return found


def unwell(port: int, path: str = "/healthz") -> dict[str, Any]:
    """The answer about the shop, once the shop itself is not well; another pipeline of the process may be unwell before it."""

    def ill() -> dict[str, Any] | None:
        code, answer = asked(port, path)
        shop = shop_of(answer) if code == 503 else {}
        return shop if shop.get("reason") else None

    return until(ill)


@dataclass
class Pair:
    """A process on three live pipelines and a batch, and later another one on the three, two of which are batches to it."""

    shop: Rig
    relieved: Rig
    bereaved: Rig

    def __post_init__(self) -> None:
        self.other, (self.port, self.second_port) = self.shop.folder / "other.yaml", free_ports(2)
        for rig in self.rigs:
            rig.file.write_text(rig.file.read_text().replace(f"term: {TERM}", f"term: {LONG}"))
        text = self.shop.file.read_text().replace("name: shop", "name: other") + "mode: batch\n"
        self.other.write_text(re.sub(r"(?s)sink:.*?(?=\nsource)", "sink: {type: discard}", text))
        self.shop.shop.sell(10)
        files = [self.other, self.relieved.file, self.bereaved.file]
        self.first = self.shop.start(*files, "--metrics", str(self.port), armed={"engine.starting": "pause"})
        self.starting = unwell(self.port)
        self.first.release("engine.starting")

    @property
    def rigs(self) -> list[Rig]:
        return [self.shop, self.relieved, self.bereaved]

    @cached_property
    def second(self) -> Program:
        """The process that stands by for the shop, with changes waiting that two batches are to deliver."""
        for rig in (self.relieved, self.bereaved):
            rig.file.write_text(rig.file.read_text() + "mode: batch\n")
            rig.receiver.turn(fail_rate=1.0)
            rig.shop.sell(10)
        program = self.shop.start(self.relieved.file, self.bereaved.file, "--metrics", str(self.second_port))
        for rig in self.rigs:
            program.until_event("StandingBy", pipeline=rig.name)
        return program

    @cached_property
    def killed(self) -> int:
        """The epoch in which the first process led when it was killed, but not its workers."""
        assert self.second.is_running()
        self.shop.until_settled()
        epoch = self.shop.pipeline_state().epoch
        send(signal.SIGKILL, self.first.tree()[:1])
        return epoch

    @cached_property
    def engine(self) -> psutil.Process:
        """The JVM of the first process, which was killed; until another one runs, what is seen is in `told`."""
        self.epoch = self.shop.pipeline_state().epoch
        engine = self.first.jvm()
        self.first.arm("engine.starting", "pause")
        send(signal.SIGKILL, [engine])
        self.told = until(lambda: (seen := unwell(self.port))["state"] != "leading" and seen)
        self.first.until_reached("engine.starting")
        self.told_later = unwell(self.port)
        self.first.release("engine.starting")
        self.shop.shop.sell(5)
        self.shop.until_settled()
        return engine


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("pair")
    with (
        Rig(folder / "shop") as shop,
        Rig(folder / "relieved", "relieved") as relieved,
        Rig(folder / "bereaved", "bereaved") as bereaved,
    ):
        yield Pair(shop, relieved, bereaved)


def test_of_two_files_the_batch_ends_without_what_is_committed_after_its_start_and_the_live_one_goes_on(pair: Pair) -> None:
    pair.first.until_event("Led", pipeline="other")
    pair.shop.shop.sell(5)
    completed = pair.first.until_event("Completed", pipeline="other")
    assert 10 <= completed["position"] <= 15
    pair.shop.shop.sell(5)
    pair.shop.until_settled()
    _, [live, batch] = status(pair.shop.file, pair.other)
    assert (live["state"], live["position"]) == ("leading", 20)
    assert (batch["state"], batch["mode"], batch["position"]) == ("stopped", "batch", completed["position"])


def test_metrics_and_health_follow_a_pipeline_through_an_outage_and_the_death_of_its_engine(pair: Pair) -> None:
    rig, port = pair.shop, pair.port
    assert pair.starting["state"] == "starting"
    for one in pair.rigs:
        pair.first.until_event("LaneClaimed", pipeline=one.name)
    rig.shop.sell(5)
    until(lambda: value(port, "penstock_delivered_changes_total") == rig.shop.head)
    until(lambda: value(port, "penstock_backlog_changes") == 0)
    assert asked(port, "/healthz")[0] == 200
    assert value(port, "penstock_state", '{pipeline="shop",state="leading"}') == 1

    rig.receiver.turn(fail_rate=1.0)
    rig.shop.sell(2)
    assert "stalled: 2 changes wait" in unwell(port, "/healthz?stalled=1s")["reason"]
    patient, _ = until(lambda: "sink.failing" in (got := asked(port, "/healthz?stalled=1h"))[1] and got)
    assert patient == 200
    assert value(port, "penstock_error", '{code="sink.failing",pipeline="shop"}') == 1
    code, [seen] = status(rig.file)
    assert (code, seen["state"], "status 500" in seen["error"]["message"]) == (0, "leading", True)
    until(lambda: value(port, "penstock_delivery_retries_total") > 1)

    rig.receiver.turn(fail_rate=0.0)
    until(lambda: asked(port, "/healthz?stalled=1s")[0] == 200 and value(port, "penstock_backlog_changes") == 0)
    until(lambda: shop_of(asked(port, "/healthz")[1])["trouble"] is None and "penstock_error{" not in asked(port, "/metrics")[1])
    assert status(rig.file)[1][0]["error"] is None

    assert pair.engine
    assert pair.told["state"] in ("halted", "starting")
    assert pair.told_later["state"] == "starting"
    until(lambda: asked(port, "/healthz")[0] == 200 and value(port, "penstock_backlog_changes") == 0)
    assert value(port, "penstock_epoch") == 2


def test_a_process_whose_engine_is_killed_comes_back_by_itself(pair: Pair) -> None:
    assert not pair.engine.is_running()
    assert pair.first.is_running()
    assert pair.first.jvm().pid != pair.engine.pid
    assert pair.shop.pipeline_state().epoch > pair.epoch
    assert pair.shop.leader() is pair.first
    assert pair.shop.breaches() == []


def test_a_batch_beside_a_live_process_ends_when_that_one_has_delivered_what_was_there(pair: Pair) -> None:
    beside, batch = pair.relieved, pair.second
    assert beside.position < beside.shop.head
    beside.receiver.turn(fail_rate=0.0)
    batch.until_event("Completed", pipeline=beside.name)
    assert beside.position >= beside.shop.head
    assert not of(batch.events("Led"), beside)
    assert beside.pipeline_state().is_held
    assert str(pair.first.pid) in beside.pipeline_state().holder
    _, [seen] = status(beside.file)
    assert (seen["mode"], seen["state"]) == ("batch", "leading")


def first_of_a_later_epoch(rig: Rig, epoch: int) -> oracle.Delivery | None:
    """The first change that a successor has delivered; workers of the one that was killed may deliver for a moment."""
    rig.shop.sell(1)
    return next((delivery for delivery in rig.deliveries() if delivery.epoch > epoch), None)


def test_a_standby_delivers_once_its_leader_is_killed_though_the_term_goes_on(pair: Pair) -> None:
    until(lambda: first_of_a_later_epoch(pair.shop, pair.killed), what=pair.shop.tails)
    pair.first.process.wait(PATIENCE)
    pair.first.assert_gone()
    assert pair.shop.leader() is pair.second
    pair.shop.until_settled()
    assert pair.shop.breaches() == []


def test_a_batch_beside_a_live_process_that_dies_delivers_by_itself(pair: Pair) -> None:
    beside, batch = pair.bereaved, pair.second
    assert pair.killed
    assert not of(batch.events("Completed"), beside)
    beside.receiver.turn(fail_rate=0.0)
    batch.until_event("Completed", pipeline=beside.name)
    assert of(batch.events("Led"), beside)
    assert beside.position == beside.shop.head
    assert beside.breaches() == []


def test_a_process_that_has_ended_is_asked_in_vain_and_batches_beside_others_have_not_failed(pair: Pair) -> None:
    assert asked(pair.second_port, "/healthz")[0] == 200
    assert pair.second.terminate() == 0
    assert asked(pair.second_port, "/healthz")[0] == 0


class Quiet(Part):
    """All is delivered and recorded when the process is killed."""

    def way(self) -> Way:
        self.live = rig = self.rig("quiet")
        rig.shop.sell(10)
        yield [rig.file]
        rig.until_settled()
        yield
        _, [self.status] = status(rig.file)
        rig.shop.sell(5)
        yield [rig.file]
        rig.until_settled()
        yield


def test_nothing_survives_a_kill_of_the_whole_tree_and_the_next_process_goes_on(interrupted: Story) -> None:
    quiet = interrupted.of(Quiet)
    killed, program = quiet.programs
    killed.assert_gone()
    assert quiet.status["state"] == "stopped"
    assert quiet.live.positions() == list(range(1, 16)), "what was settled came again"
    assert quiet.live.breaches() == []
    assert program.process.returncode == 0
