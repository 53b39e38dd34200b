"""Nothing listens at the webhooks of two pipelines of one process: one gives up and is halted, the other tries for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from deadline import until
from fix_rig import QUICK, Rig
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.testing import oracle
from penstock.testing.receiver import ReceiverProcess
from program import Program, status
from servers.ports import free_ports

WHERE = "table = 'orders' and try_variant_get(after, '$.total', 'double') >= 100"


@dataclass
class Story:
    """What happened, for the tests to judge."""

    stubborn: Rig
    resigned: Rig
    events: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)
    exits: list[int] = field(default_factory=list)
    exits_of_another: int = 0
    events_of_another: list[dict[str, Any]] = field(default_factory=list)
    kept: tuple[int, int] = (0, 0)
    registered: int | None = None

    def run_into_nothing(self) -> None:
        """Nobody listens, until somebody does at one of the two."""
        program = self.stubborn.start(self.resigned.file)
        program.until_event("Halted", pipeline="resigned")
        program.until_event("DeliveryRetried", pipeline="stubborn", count=15)
        self.status["outage"] = status(self.stubborn.file, self.resigned.file)
        self.run_with_another_state()
        self.stubborn.receiver.start()
        self.stubborn.until_settled()
        self.exits.append(program.terminate())
        self.events = program.events()

    def run_with_another_state(self) -> None:
        """The same name, with a state of its own: it would begin now, behind everything that is held back."""
        rig = self.stubborn
        file = rig.folder / "another.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(rig.file.read_text()) | {"state": "another.db"}))
        program = Program(rig.folder, file, "--from", "now")
        self.exits_of_another, self.events_of_another = program.exit_code(), program.events("Halted")
        with closing(sqlite3.connect(rig.shop.path)) as connection:
            self.kept = connection.execute("select min(seq), max(seq) from _penstock_log").fetchone()
        self.registered = SqliteSource(database=str(rig.shop.path)).retention.registered(rig.name, LANE)

    def run_repaired(self) -> None:
        """Both have receivers."""
        self.resigned.receiver.start()
        program = self.stubborn.start(self.resigned.file)
        until(lambda: self.resigned.position == self.resigned.shop.head, what=program.tail)
        self.status["repaired"] = status(self.stubborn.file, self.resigned.file)
        self.exits.append(program.terminate())


def rig(folder: Any, name: str, port: int, **how: Any) -> Rig:
    """A pipeline whose receiver is not there yet."""
    made = Rig(folder / name, name, ReceiverProcess(folder / f"{name}.requests", port), url=f"http://127.0.0.1:{port}/hook", **how)
    for total in (1.5, 100.0, 1e6, 99.99):
        with made.shop.transaction() as work:
            work.put("orders", id=made.shop.head, customer=1, total=total, note=None)
            work.put("stock", sku=f"s{made.shop.head}", on_hand=1)
    return made


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder, (first, second) = tmp_path_factory.mktemp("outage"), free_ports(2)
    with (
        rig(folder, "stubborn", first, transform={"where": WHERE}) as stubborn,
        rig(folder, "resigned", second, retry=QUICK | {"tries": 3}) as resigned,
    ):
        told = Story(stubborn, resigned)
        told.run_into_nothing()
        told.run_repaired()
        yield told


def test_limited_tries_halt_the_pipeline_and_the_process_exits_with_1(story):
    events = [event for event in story.events if event.get("pipeline") == "resigned"]
    assert [event["tries"] for event in events if event["event"] == "DeliveryRetried"] == [1, 2]
    [halted] = [event for event in events if event["event"] == "Halted"]
    assert halted["code"] == "sink.exhausted"
    assert story.exits[0] == 1


def test_status_shows_what_halted_it_and_what_to_do_and_the_watermark_has_not_moved(story):
    code, [_, halted] = story.status["outage"]
    assert code == 1
    assert (halted["state"], halted["position"], halted["backlog"]) == ("halted", 0, 8)
    assert halted["error"]["code"] == "sink.exhausted"
    assert "not taken in 3 tries" in halted["error"]["message"]
    assert "run the pipeline again" in halted["error"]["remedy"]


def test_a_second_state_of_a_live_pipelines_name_is_refused_and_nothing_is_pruned(story):
    [halted] = story.events_of_another
    assert halted["code"] == "source.owned"
    assert str(story.stubborn.folder / "state.db") in halted["message"]
    assert "penstock forget FILE" in halted["remedy"]
    assert story.exits_of_another == 1
    assert (story.kept, story.registered) == ((1, 8), 0)


def test_it_goes_on_where_it_stopped_once_the_receiver_is_repaired(story):
    assert story.resigned.positions() == list(range(1, 9))
    assert story.resigned.breaches() == []
    assert story.status["repaired"][0] == 0
    assert story.status["repaired"][1][1]["error"] is None
    assert story.exits[1] == 0


def test_status_tells_what_is_tried_again_until_it_has_passed(story):
    _, [trying, _] = story.status["outage"]
    assert trying["error"]["code"] == "sink.failing"
    assert "Connection refused" in trying["error"]["message"]
    assert "sent again automatically" in trying["error"]["remedy"]
    assert story.status["repaired"][1][0]["error"] is None


def test_tries_without_end_hold_out_until_somebody_listens(story):
    _, [trying, _] = story.status["outage"]
    assert (trying["state"], trying["delivered"]) == ("leading", 0)
    assert trying["lag_seconds"] > 0
    assert story.stubborn.positions()


def test_where_lets_pass_what_it_names_and_the_rest_is_settled_all_the_same(story):
    shop, seen = story.stubborn.shop, story.stubborn.deliveries()
    wanted = {position: fact for position, fact in shop.log.items() if fact["table"] == "orders" and fact["after"]["total"] >= 100}
    assert oracle.completeness(seen, wanted) + oracle.chain(seen) + oracle.repeats(seen) == []
    assert len(wanted) == 2 < shop.head
    assert story.stubborn.position == shop.head
