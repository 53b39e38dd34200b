"""Batches as processes: they end when all is delivered, go on after a kill, and live beside others on the same pipeline."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deadline import PATIENCE, until
from fix_rig import Rig
from program import send, status

MANY = """
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
insert into customers(id, name) select i, 'Ann' from n
"""


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A batch that was killed in the middle, continued, stopped in the middle, and continued to its end."""
    with Rig(tmp_path_factory.mktemp("worn")) as rig:
        rig.shop.sell(590)
        rig.early = {file.name: file.read_bytes() for file in rig.folder.glob("shop.db*")}
        rig.shop.sell(10)
        rig.receiver.turn(slow=0.4)
        killed = rig.start("--available-now")
        rig.until_delivered(100)
        killed.kill_tree()
        stopped = rig.start("--available-now")
        rig.until_delivered(300)
        stopped.process.send_signal(signal.SIGTERM)
        stopped.exit_code()
        rig.taken, rig.recorded = max(rig.positions()), rig.position
        rig.receiver.turn(slow=0.0)
        rig.start("--available-now").exit_code(PATIENCE)
        yield rig


def test_a_batch_that_is_killed_and_continued_loses_nothing_and_keeps_the_order(worn):
    assert worn.position == worn.shop.head
    assert worn.breaches() == []


def test_a_batch_that_is_asked_to_stop_exits_with_0_and_has_recorded_all_that_was_taken(worn):
    assert worn.programs[1].process.returncode == 0
    assert worn.recorded == worn.taken < 600
    assert worn.programs[1].events("Stopped")
    assert not worn.programs[1].events("Completed")


def test_a_batch_exits_with_0_once_everything_is_delivered(worn):
    assert worn.programs[2].process.returncode == 0
    assert worn.programs[2].events("Completed")[-1]["position"] == 600
    _, [seen] = status(worn.file)
    assert (seen["state"], seen["position"], seen["backlog"]) == ("stopped", 600, 0)


def test_a_batch_of_nothing_needs_no_engine(worn):
    idle = worn.start("--available-now")
    assert idle.exit_code(PATIENCE) == 0
    assert [event["event"] for event in idle.events()] == ["Completed"]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A live process that leads, on a file that says `mode: batch` to the next ones."""
    with Rig(tmp_path_factory.mktemp("beside")) as rig:
        rig.start().until_event("LaneClaimed")
        rig.file.write_text(rig.file.read_text() + "mode: batch\n")
        yield rig


def test_a_batch_beside_a_live_process_ends_when_that_one_has_delivered_what_was_there(beside):
    live = beside.leader()
    beside.receiver.turn(fail_rate=1.0)
    head = beside.shop.sell(10)
    batch = beside.start()
    batch.until_event("StandingBy")
    assert beside.position < head
    beside.receiver.turn(fail_rate=0.0)
    assert batch.exit_code(PATIENCE) == 0
    assert beside.position >= head
    assert not batch.events("Led")
    assert beside.leader() is live
    _, [seen] = status(beside.file)
    assert (seen["mode"], seen["state"]) == ("batch", "leading")


def test_a_batch_beside_a_live_process_that_dies_delivers_by_itself(beside):
    live = until(beside.leader)
    beside.receiver.turn(fail_rate=1.0)
    head = beside.shop.sell(10)
    batch = beside.start()
    batch.until_event("StandingBy")
    send(signal.SIGKILL, live.tree())
    beside.receiver.turn(fail_rate=0.0)
    assert batch.exit_code(PATIENCE) == 0
    assert batch.events("Led")
    assert beside.position == head
    assert beside.breaches() == []


def test_of_two_files_the_batch_ends_without_what_is_committed_after_its_start_and_the_live_one_goes_on(rig):
    other = Path(rig.file.with_name("other.yaml"))
    other.write_text(rig.file.read_text().replace("name: shop", "name: other") + "mode: batch\n")
    rig.shop.sell(10)
    program = rig.start(other)
    program.until_event("Led", pipeline="other")
    rig.shop.sell(5)
    completed = program.until_event("Completed", pipeline="other")
    assert 10 <= completed["position"] <= 15
    rig.shop.sell(5)
    rig.until_settled()
    _, [live, batch] = status(rig.file, other)
    assert (live["state"], live["position"]) == ("leading", 20)
    assert (batch["state"], batch["mode"], batch["position"]) == ("stopped", "batch", completed["position"])
    assert program.terminate() == 0


def test_a_batch_that_halts_exits_with_1(rig):
    rig.write(retry={"tries": 2, "min": "10ms", "max": "10ms"})
    rig.receiver.turn(fail_rate=1.0)
    rig.shop.sell(3)
    program = rig.start("--available-now")
    assert program.exit_code(PATIENCE) == 1
    _, [seen] = status(rig.file)
    assert (seen["state"], seen["error"]["code"], seen["position"]) == ("halted", "sink.exhausted", 0)


def test_a_batch_on_a_database_that_ends_before_the_watermark_is_no_success(worn, rig):
    for name, content in worn.early.items():
        (rig.folder / name).write_bytes(content)
    shutil.copy(worn.folder / "state.db", rig.folder)
    program = rig.start("--available-now")
    assert program.exit_code(PATIENCE) == 1
    assert program.events("Halted")[-1]["code"] == "source.rewound"


def test_a_live_pipeline_that_is_far_behind_catches_up_first_and_then_goes_live(rig):
    rig.file.write_text(re.sub(r"(?s)sink:.*?(?=\nsource)", "sink: {type: discard}", rig.file.read_text()))
    with closing(sqlite3.connect(rig.shop.path)) as connection:
        connection.execute(MANY)
        connection.commit()
    program = rig.start()
    program.until_event("LaneClaimed", count=2)
    rig.shop.sell(3)
    rig.until_settled()
    assert len(program.events("CatchingUp")) == 1
    assert not program.events("Restarted")
    assert program.terminate() == 0
