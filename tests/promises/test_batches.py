"""Batches as processes: they end when all is delivered, go on after a kill, and halt with exit code 1."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from stories import Part, Story, Way, of, paused

from fix_rig import Rig
from program import Program, status

MANY = """
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
insert into customers(id, name) select i, 'Ann' from n
"""
ALL = 600
SLOW = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds for its start; on a host that starves it may take longer, and the query starts again."""


def refuse_from(rig: Rig, position: int) -> None:
    """The receiver takes what is before this change, and refuses the requests with it: the batch stays in the middle."""
    rig.receiver.turn(poison=f'"position":{position},')


class Worn(Part):
    """A batch that was killed in the middle, continued, stopped in the middle, and continued to its end."""

    def way(self) -> Way:
        self.batch = rig = self.rig("worn")
        rig.file.write_text(rig.file.read_text() + "mode: batch\n")
        rig.shop.sell(ALL)
        refuse_from(rig, 201)
        yield [rig.file]
        rig.until_delivered(200)
        yield
        rig.receiver.turn(slow=0.4)
        self.stopped = yield [rig.file]
        rig.until_delivered(300)
        refuse_from(rig, 581)
        rig.until_delivered(301)
        yield
        self.taken, self.recorded = max(rig.positions()), rig.position
        rig.receiver.turn(slow=0.0, poison="")
        self.finished = yield [rig.file]
        yield

    def brink(self, program: Program) -> None:
        refuse_from(self.batch, 301)
        paused(program, self.batch, "writer.advancing")


@pytest.fixture
def worn(interrupted: Story) -> Worn:
    return interrupted.of(Worn)


def test_a_batch_that_is_killed_and_continued_loses_nothing_and_keeps_the_order(worn: Worn) -> None:
    assert worn.batch.position == worn.batch.shop.head
    assert worn.batch.breaches() == []


def test_a_batch_that_is_asked_to_stop_exits_with_0_and_has_recorded_all_that_was_taken(worn: Worn) -> None:
    assert worn.stopped.process.returncode == 0
    assert worn.recorded == worn.taken < ALL
    assert of(worn.stopped.events("Stopped"), worn.batch)
    assert not of(worn.stopped.events("Completed"), worn.batch)


def test_a_batch_exits_with_0_once_everything_is_delivered(worn: Worn) -> None:
    assert worn.finished.process.returncode == 0
    assert of(worn.finished.events("Completed"), worn.batch)[-1]["position"] == ALL
    _, [seen] = status(worn.batch.file)
    assert (seen["state"], seen["position"], seen["backlog"]) == ("stopped", ALL, 0)


def test_a_batch_of_nothing_needs_no_engine(worn: Worn) -> None:
    idle = worn.batch.start("--available-now")
    assert idle.exit_code() == 0
    assert [event["event"] for event in idle.events()] == ["Completed"]


class FarBehind(Part):
    """A live pipeline with a hundred thousand changes before it."""

    def way(self) -> Way:
        yield []
        yield
        self.live = rig = self.rig("behind")
        rig.file.write_text(re.sub(r"(?s)sink:.*?(?=\nsource)", "sink: {type: discard}", rig.file.read_text()))
        with closing(sqlite3.connect(rig.shop.path)) as connection:
            connection.execute(MANY)
            connection.commit()
        self.program = yield [rig.file]
        self.program.until_event("LaneClaimed", pipeline=rig.name, position=100_000)
        rig.shop.sell(3)
        rig.until_settled()
        yield


def test_a_live_pipeline_that_is_far_behind_catches_up_first_and_then_goes_live(interrupted: Story) -> None:
    behind = interrupted.of(FarBehind)
    restarts = of(behind.program.events("Restarted"), behind.live)
    assert [one for one in restarts if SLOW not in one["message"]] == []
    assert 1 <= len(of(behind.program.events("CatchingUp"), behind.live)) <= 1 + len(restarts)
    assert behind.program.process.returncode == 0


class Exhausted(Part):
    """A batch whose receiver refuses everything."""

    def way(self) -> Way:
        yield []
        yield
        self.batch = rig = self.rig("exhausted", retry={"tries": 2, "min": "10ms", "max": "10ms"})
        rig.receiver.turn(fail_rate=1.0)
        rig.shop.sell(3)
        yield [rig.file]
        yield


def test_a_batch_that_halts_exits_with_1(halted: Story) -> None:
    exhausted = halted.of(Exhausted)
    [program] = exhausted.programs
    assert program.process.returncode == 1
    _, [seen] = status(exhausted.batch.file)
    assert (seen["state"], seen["error"]["code"], seen["position"]) == ("halted", "sink.exhausted", 0)


class Rewound(Part):
    """A batch that has ended; then its database is replaced by an earlier copy of it."""

    def way(self) -> Way:
        self.batch = rig = self.rig("rewound")
        rig.file.write_text(rig.file.read_text() + "mode: batch\n")
        rig.shop.sell(5)
        early = {file: file.read_bytes() for file in rig.folder.glob("shop.db*")}
        rig.shop.sell(5)
        program = yield [rig.file]
        program.until_event("Completed", pipeline=rig.name, position=10)
        yield
        for file in rig.folder.glob("shop.db*"):
            file.unlink()
        for file, content in early.items():
            file.write_bytes(content)
        yield [rig.file]
        yield


def test_a_batch_on_a_database_that_ends_before_the_watermark_is_no_success(halted: Story) -> None:
    rewound = halted.of(Rewound)
    assert rewound.programs[-1].process.returncode == 1
    assert f" {rewound.batch.name}: halted by source.rewound: " in rewound.programs[-1].said()
