"""The ground is pulled away under running pipelines: each is halted with a code and says what to do; none goes on silently."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deadline import until
from fix_rig import Rig
from penstock.sources.sqlite.readers import registered
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.source import LANE
from penstock.testing import oracle
from program import status

REBUILD = """begin; create table fresh(id integer primary key, customer integer, total real, note blob, extra);
    insert into fresh select *, null from orders; delete from fresh where id = (select min(id) from fresh);
    drop table orders; alter table fresh rename to orders; commit"""


@dataclass
class Story:
    """What happened, for the tests to judge."""

    rigs: dict[str, Rig]
    exit: int
    halted: dict[str, dict[str, Any]]
    status: dict[str, dict[str, Any]]
    delivered_before: dict[str, int]


def pull_away(rigs: dict[str, Rig]) -> None:
    """Remove the state of one, restore the database of another from a backup, rebuild a table of the third."""
    for file in rigs["forgotten"].folder.glob("state.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    restored = rigs["restored"].shop.path
    for suffix in ("-wal", "-shm"):
        restored.with_name(restored.name + suffix).unlink(missing_ok=True)
    backup(rigs["restored"]).replace(restored)
    with closing(sqlite3.connect(rigs["rebuilt"].shop.path, isolation_level=None)) as connection:
        connection.executescript(REBUILD)


def backup(rig: Rig) -> Path:
    return rig.folder / "backup.db"


def back_up(rig: Rig) -> None:
    with closing(sqlite3.connect(rig.shop.path)) as here, closing(sqlite3.connect(backup(rig))) as there:
        here.backup(there)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("ground")
    with ExitStack() as stack:
        rigs = {name: stack.enter_context(Rig(folder / name, name)) for name in ("forgotten", "restored", "rebuilt")}
        for rig in rigs.values():
            rig.shop.sell(5)
            back_up(rig)
            rig.shop.sell(5)
        yield run_until_halted(rigs)


def run_until_halted(rigs: dict[str, Rig]) -> Story:
    """One process for all three; each must be halted."""
    files = [rig.file for rig in rigs.values()]
    program = rigs["forgotten"].start(*files[1:])
    for rig in rigs.values():
        rig.until_settled()
        until(lambda rig=rig: registered(str(rig.shop.path), rig.name, LANE) == 10)
    delivered = {name: len(rig.positions()) for name, rig in rigs.items()}
    pull_away(rigs)
    halted = {name: program.until_event("Halted", pipeline=name) for name in rigs}
    code = program.exit_code()
    return Story(rigs, code, halted, {one["name"]: one for one in status(*files)[1]}, delivered)


def test_the_process_exits_with_1(story):
    assert story.exit == 1


@pytest.mark.parametrize(
    ("name", "code", "remedy"),
    [
        ("forgotten", "state.lost", "--from 10"),
        ("restored", "source.rewound", "--from POSITION"),
        ("rebuilt", "capture.broken", "penstock capture repair"),
    ],
)
def test_each_is_halted_with_its_code_and_what_to_do(story, name, code, remedy):
    assert story.halted[name]["code"] == code
    assert remedy in story.halted[name]["remedy"]
    assert story.status[name]["state"] == "halted"
    assert story.status[name]["error"]["code"] == code


def test_nothing_was_delivered_from_lost_ground(story):
    assert {name: len(rig.positions()) for name, rig in story.rigs.items()} == story.delivered_before


def test_they_go_on_from_where_a_person_says(story):
    rigs = story.rigs
    with closing(sqlite3.connect(rigs["restored"].shop.path, isolation_level=None)) as connection:
        connection.execute("insert into orders(id, total) values(1, 1.5)")
    rigs["forgotten"].shop.sell(2)
    program = rigs["forgotten"].start(rigs["restored"].file, "--from", "beginning")
    rigs["forgotten"].until_delivered(12)
    until(lambda: rigs["restored"].positions()[-6:] == [1, 2, 3, 4, 5, 6])
    assert program.terminate() == 0
    assert rigs["forgotten"].positions() == [*range(1, 11), 10, 11, 12]  # the log begins where settled changes were pruned


def test_a_repaired_pipeline_goes_on_by_itself_and_heals_what_loses_nothing(story):
    rig, seen = story.rigs["rebuilt"], story.delivered_before["rebuilt"]
    repair(str(rig.shop.path), "orders")
    program = rig.start()
    until(lambda: told(rig)[seen:][-1:] == ["schema"])
    assert told(rig)[seen:] == ["schema", "schema", *["refresh"] * 9, "schema"]
    with closing(sqlite3.connect(rig.shop.path, isolation_level=None)) as connection:
        connection.execute("alter table orders add column discount real default 0.5")
        until(lambda: len(told(rig)) == seen + 13)
        connection.execute("insert into orders(id, total) values(1, 1.5)")
        until(lambda: len(told(rig)) == seen + 14)
    assert told(rig)[-2:] == ["schema", "insert"]
    assert rig.deliveries()[-2].change["after"]["added"] == {"discount": 0.5}
    assert rig.deliveries()[-1].change["after"]["discount"] == 0.5
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []
    assert program.terminate() == 0


def told(rig: Rig) -> list[str]:
    return [delivery.change["op"] for delivery in rig.deliveries()]
