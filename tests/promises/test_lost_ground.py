"""The ground is pulled away under running pipelines: each is halted with a code and says what to do; none goes on silently."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from stories import Part, Story, Way

from deadline import PATIENCE, until
from fix_rig import Rig
from penstock.config import load
from penstock.running import admin
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.testing import oracle
from program import Program, status

REBUILD = """begin; create table fresh(id integer primary key, customer integer, total real, note blob, extra);
    insert into fresh select *, null from orders; delete from fresh where id = (select min(id) from fresh);
    drop table orders; alter table fresh rename to orders; commit"""


def pull_away(rigs: dict[str, Rig]) -> None:
    """Remove the state of one, restore the database of another from a backup, rebuild a table of the third."""
    for file in rigs["forgotten"].folder.glob("state.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    restored = rigs["restored"].shop.path
    for suffix in ("-wal", "-shm"):
        restored.with_name(restored.name + suffix).unlink(missing_ok=True)
    backup(rigs["restored"]).replace(restored)
    with closing(sqlite3.connect(rigs["rebuilt"].shop.path, timeout=PATIENCE, isolation_level=None)) as connection:
        connection.executescript(REBUILD)


def backup(rig: Rig) -> Path:
    return rig.folder / "backup.db"


def back_up(rig: Rig) -> None:
    with closing(sqlite3.connect(rig.shop.path)) as here, closing(sqlite3.connect(backup(rig))) as there:
        here.backup(there)


class LostGround(Part):
    """Three pipelines lose their ground; two go on from where a person says, one by itself."""

    def way(self) -> Way:
        self.of = {name: self.rig(name) for name in ("forgotten", "restored", "rebuilt")}
        for rig in self.rigs:
            rig.shop.sell(5)
            back_up(rig)
            rig.shop.sell(5)
        files = [rig.file for rig in self.rigs]
        program = yield files
        self.run_until_halted(program)
        yield
        self.status = {one["name"]: one for one in status(*files)[1]}
        self.delivered_after = {rig.name: len(rig.positions()) for rig in self.rigs}
        yield []
        yield
        yield from self.go_on_from_the_beginning(self.of["forgotten"], self.of["restored"])
        yield from self.go_on_by_itself(self.of["rebuilt"])

    def run_until_halted(self, program: Program) -> None:
        for rig in self.rigs:
            rig.until_settled()
            retention = SqliteSource(database=str(rig.shop.path)).retention
            until(lambda rig=rig, retention=retention: retention.registered(rig.name, LANE) == 10)
        self.delivered = {rig.name: len(rig.positions()) for rig in self.rigs}
        pull_away(self.of)
        self.halted = {name: program.until_event("Halted", pipeline=name) for name in self.of}

    def go_on_from_the_beginning(self, forgotten: Rig, restored: Rig) -> Way:
        with closing(sqlite3.connect(restored.shop.path, timeout=PATIENCE, isolation_level=None)) as connection:
            connection.execute("insert into orders(id, total) values(1, 1.5)")
        forgotten.shop.sell(2)
        admin.forget(load(forgotten.file))  # hands over what its lost state had registered
        yield [forgotten.file, restored.file]
        forgotten.until_delivered(12)
        until(lambda: restored.positions()[-6:] == [1, 2, 3, 4, 5, 6], what=restored.tails)
        yield

    def go_on_by_itself(self, rig: Rig) -> Way:
        repair(str(rig.shop.path), "orders")
        seen = self.delivered["rebuilt"]
        yield [rig.file]
        until(lambda: len(told(rig)) >= seen + 12, what=rig.tails)
        self.repaired = told(rig)[seen:]
        with closing(sqlite3.connect(rig.shop.path, timeout=PATIENCE, isolation_level=None)) as connection:
            connection.execute("alter table orders add column discount real default 0.5")
            until(lambda: len(told(rig)) == seen + 13, what=rig.tails)
            connection.execute("insert into orders(id, total) values(1, 1.5)")
            until(lambda: len(told(rig)) == seen + 14, what=rig.tails)
        yield


@pytest.fixture
def lost(halted: Story) -> LostGround:
    return halted.of(LostGround)


def test_the_process_exits_with_1(lost: LostGround) -> None:
    assert lost.programs[0].process.returncode == 1


@pytest.mark.parametrize(
    ("name", "code", "remedy"),
    [
        ("forgotten", "source.owned", "penstock forget FILE"),
        ("restored", "source.rewound", "--from POSITION"),
        ("rebuilt", "capture.broken", "penstock capture repair"),
    ],
)
def test_each_is_halted_with_its_code_and_what_to_do(lost: LostGround, name: str, code: str, remedy: str) -> None:
    assert lost.halted[name]["code"] == code
    assert remedy in lost.halted[name]["remedy"]
    assert lost.status[name]["state"] == "halted"
    assert lost.status[name]["error"]["code"] == code


def test_nothing_was_delivered_from_lost_ground(lost: LostGround) -> None:
    assert lost.delivered_after == lost.delivered


def test_they_go_on_from_where_a_person_says(lost: LostGround) -> None:
    assert lost.of["forgotten"].positions() == [*range(1, 11), 10, 11, 12]  # the log begins where settled changes were pruned
    assert lost.of["restored"].positions()[-6:] == [1, 2, 3, 4, 5, 6]
    assert lost.programs[1].process.returncode == 0


def test_a_repaired_pipeline_goes_on_by_itself_and_heals_what_loses_nothing(lost: LostGround) -> None:
    rig = lost.of["rebuilt"]
    assert lost.repaired == ["schema", "schema", *["refresh"] * 9, "schema"]
    assert told(rig)[-2:] == ["schema", "insert"]
    assert rig.deliveries()[-2].change["after"]["added"] == {"discount": 0.5}
    assert rig.deliveries()[-1].change["after"]["discount"] == 0.5
    assert oracle.rebuilt(rig.deliveries(), rig.shop.tables()) == []
    assert lost.programs[2].process.returncode == 0


def told(rig: Rig) -> list[str]:
    return [delivery.change["op"] for delivery in rig.deliveries()]
