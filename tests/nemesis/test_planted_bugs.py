"""Bugs are planted into real processes, one for each defence: the oracles report every one of them, and nothing without them."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import psutil
import pytest

from deadline import PATIENCE, until
from far_side import FarSide, Lenient, foreign, interleaved, late
from fix_rig import Rig, Sampler
from penstock.receiver import MemoryStore
from penstock.testing import oracle
from penstock.testing.request import Request
from program import Program, altered_by, send

LOOKS = 12  # at the watermark: time for a writer to record what it should not
SETTLES = 3  # one that is under way, one to find the log still, and one that would prune it
MOVING = {"watermark-before-post", "marks-counted-early", "lane-without-lock", "end-of-input-is-success", "term-not-checked"}
RULES = """
def split(change):
    return [change, change] if change.table == "stock" else change
"""


class Watched:
    """A pipeline, where its watermark was seen, and what came since the last test."""

    def __init__(self, rig: Rig, sampler: Sampler, is_parallel: bool = False) -> None:
        self.rig, self._sampler, self._is_parallel = rig, sampler, is_parallel
        self.begin()

    def begin(self) -> None:
        """Judge only what comes from here on."""
        self.base, self._requests, self._marks = self.rig.shop.head, len(self.rig.receiver.requests), len(self._sampler.marks)

    def look(self) -> None:
        """Look at the watermark some times."""
        upto = len(self._sampler.marks) + LOOKS
        until(lambda: len(self._sampler.marks) >= upto)

    def has_moved(self) -> bool:
        """Whether the watermark was seen beyond where it stood."""
        return any(mark.position > self.base for mark in list(self._sampler.marks)[self._marks :])

    def breaches(self) -> list[str]:
        """What the oracles say of it; where rows go side by side, those that hold for each row."""
        seen, marks = self.deliveries(), list(self._sampler.marks)[self._marks :]
        found = oracle.completeness(seen, dict(self._made())) + oracle.order(seen) + oracle.resolved(seen, marks)
        return found if self._is_parallel else found + oracle.chain(seen, self.base) + oracle.repeats(seen, marks)

    def requests(self) -> list[Request]:
        """What came, taken or not."""
        return self.rig.receiver.requests[self._requests :]

    def deliveries(self) -> list[oracle.Delivery]:
        """What came and was taken."""
        return oracle.deliveries(self.requests())

    def _made(self) -> Iterator[tuple[tuple[int, int], Any]]:
        for position, fact in self.rig.shop.log.items():
            if position > self.base:
                parts = (1, 2) if fact["table"] == "stock" else (0,)  # as RULES has it
                yield from (((position, part), fact) for part in parts)


class Stage:
    """Four pipelines in one process, and a second process that stands by for all of them."""

    def __init__(self, plain: Watched, rows: Watched, pruned: Watched, far: Rig) -> None:
        self.plain, self.rows, self.pruned, self.far = plain, rows, pruned, far
        self._bugs, self._moves, self.is_bugged = plain.rig.folder / "bugs", False, False
        self._bugs.mkdir()
        files = [one.file for one in (rows.rig, pruned.rig, far)]
        env = {**altered_by("planted"), "PENSTOCK_TEST_BUGS": str(self._bugs)}
        first = plain.rig.start(*files, env=env)
        for name in ("plain", "rows", "pruned", "far"):
            first.until_event("LaneClaimed", pipeline=name)
        self._team = [first, plain.rig.start(*files, env=env)]
        for rig in (rows.rig, pruned.rig, far):
            rig.programs.extend(self._team)

    def ready(self) -> Program:
        """Undo all faults, wait until all is delivered, and answer who leads."""
        for program in self._team:
            program.disarm()
            send(signal.SIGCONT, program.tree())
        for rig in (self.plain.rig, self.rows.rig, self.far):
            rig.shop.sell(1)
            rig.until_settled()
        self.plain.begin()
        self.rows.begin()
        return until(self.plain.rig.leader, what=self.plain.rig.tails)

    def standby(self, leader: Program) -> Program:
        """The other one, which stands by for all of them."""
        [other] = [one for one in self._team if one is not leader]
        for name in ("plain", "far"):
            other.until_event("StandingBy", pipeline=name)
        return other

    def look(self) -> None:
        """See the watermark move, if a bug is on that moves it; otherwise give it time to."""
        if self._moves:
            until(self.plain.has_moved, what=self.plain.rig.tails)
        self.plain.look()

    def until_settled_again(self, name: str, times: int) -> None:
        """Wait until the source of this pipeline was settled so often again."""
        upto = self._settled(name) + times
        until(lambda: self._settled(name) >= upto, what=self.plain.rig.tails)

    def _settled(self, name: str) -> int:
        file = self._bugs / f"settled.{name}"
        return file.stat().st_size if file.exists() else 0

    @contextmanager
    def bugged(self, *bugs: str) -> Iterator[None]:
        """These bugs are on meanwhile."""
        self._moves, self.is_bugged = bool(MOVING & {*bugs}), bool(bugs)
        for bug in bugs:
            (self._bugs / bug).write_text(str(self.far.pipeline_state().epoch))
        try:
            yield
        finally:
            self._moves = self.is_bugged = False
            for bug in bugs:
                (self._bugs / bug).unlink()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("planted")
    split = {"transform": {"function": "rules:split"}, "batch": {"size": 1}, "parallel": 4}
    with (
        Rig(folder / "plain", "plain") as plain,
        Rig(folder / "rows", "rows", timeout="1h", **split) as rows,
        Rig(folder / "pruned", "pruned") as pruned,
        Rig(folder / "far", "far", FarSide().start()) as far,
        Sampler(plain) as of_plain,
        Sampler(rows) as of_rows,
        Sampler(pruned) as of_pruned,
    ):
        (folder / "rows" / "rules.py").write_text(RULES)
        plain.file.write_text(plain.file.read_text() + "spark: {master: 'local[4,1000]'}\n")  # as many kills in one epoch
        yield Stage(Watched(plain, of_plain), Watched(rows, of_rows, is_parallel=True), Watched(pruned, of_pruned), far)


def half(program: Program, rig: Rig, writes: bool) -> psutil.Process:
    """The process that writes a pipeline's lane, which holds its lock; or the one that reads it."""

    def found() -> list[psutil.Process]:
        return [one for one in program.workers() if _has(one, "/lane." if writes else "/shop.db", rig)]

    return until(found, what=lambda: f"none {'writes' if writes else 'reads'} for {rig.name}\n{program.tail()}")[0]


def _has(process: psutil.Process, part: str, rig: Rig) -> bool:
    with suppress(psutil.Error):
        return any(str(rig.folder) in one.path and part in one.path for one in process.open_files())
    return False


def pause(leader: Program, point: str, rig: Rig) -> None:
    """Let it pause at this point with changes under way."""
    leader.arm(point, "pause")
    rig.shop.sell(3)
    leader.until_reached(point)


def killed_while_sending(stage: Stage) -> list[str]:
    leader = stage.ready()
    pause(leader, "sink.sending", stage.plain.rig)
    stage.look()
    send(signal.SIGKILL, [half(leader, stage.plain.rig, writes=True)])
    leader.disarm()
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def killed_before_recording(stage: Stage) -> list[str]:
    leader = stage.ready()
    pause(leader, "sink.sent", stage.plain.rig)
    send(signal.SIGKILL, [half(leader, stage.plain.rig, writes=True)])
    leader.disarm()
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def refused_once(stage: Stage) -> list[str]:
    stage.ready()
    stage.plain.rig.receiver.turn(script=[500])
    stage.plain.rig.shop.sell(3)
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def overtaken_while_stopped(stage: Stage) -> list[str]:
    """The writer stops before a request; its reader dies, so that Spark starts another attempt beside it."""
    leader = stage.ready()
    pause(leader, "sink.sending", stage.plain.rig)
    old, reader = (half(leader, stage.plain.rig, writes) for writes in (True, False))
    leader.arm("writer.advancing", "pause")  # or it might learn that it was replaced before it goes on sending
    leader.until_reached("writer.advancing", by=old.pid)
    send(signal.SIGSTOP, [old])
    until(lambda: old.status() == psutil.STATUS_STOPPED, what=lambda: f"the writer is {old.status()}")
    leader.disarm()
    send(signal.SIGKILL, [reader])
    stage.look()
    leader.arm("writer.advancing", "pause")
    came = len(stage.plain.rig.receiver.requests)
    send(signal.SIGCONT, [old])
    until(lambda: len(stage.plain.rig.receiver.requests) > came, what=lambda: f"nothing came of {old}\n{leader.tail()}")
    leader.disarm()
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def recorded_behind_its_successors_back(stage: Stage) -> list[str]:
    """The next attempt has read from the watermark when its predecessor records what it had sent."""
    leader = stage.ready()
    pause(leader, "sink.sent", stage.plain.rig)
    leader.arm("writer.claiming", "pause")
    send(signal.SIGKILL, [half(leader, stage.plain.rig, writes=False)])
    leader.until_reached("writer.claiming")
    leader.release("sink.sent")
    until(stage.plain.has_moved, what=leader.tail)
    stage.plain.look()
    leader.disarm()
    stage.plain.rig.shop.sell(1)
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def read_to_the_end_while_sending(stage: Stage) -> list[str]:
    """The reader dies while a request is under way: the writer's input ends."""
    leader = stage.ready()
    pause(leader, "sink.sending", stage.plain.rig)
    send(signal.SIGKILL, [half(leader, stage.plain.rig, writes=False)])
    stage.look()
    leader.disarm()
    stage.plain.rig.until_settled()
    return stage.plain.breaches()


def one_row_thrice(stage: Stage) -> list[str]:
    """The first change is refused, but the answer is held: until then no other change of the row may come."""
    stage.ready()
    rig = stage.rows.rig
    rig.receiver.turn(poison=f'"position":{rig.shop.head + 1},', holds_answers=[500])
    with rig.shop.transaction() as work:
        row = {"id": rig.shop.head, "name": "Ann", "email": None}
        work.put("customers", **row)
        work.alter("customers", row, name="Bob")
        work.alter("customers", row | {"name": "Bob"}, name="Cid")
    held(stage, lambda: bool(stage.rows.deliveries()))
    return settled(stage, 3)


def two_of_one_position(stage: Stage) -> list[str]:
    """A function makes two of one change; the first is taken, the second is refused, but its answer is held."""
    stage.ready()
    rig = stage.rows.rig
    rig.receiver.turn(script=[200, 500], holds_answers=[500])
    with rig.shop.transaction() as work:
        work.put("stock", sku=f"s{rig.shop.head}", on_hand=1)
    held(stage, stage.rows.has_moved)
    return settled(stage, 2)


def held(stage: Stage, has_erred: Callable[[], bool]) -> None:
    """While the receiver holds its answer: wait until a bug that is on has shown itself; otherwise give it time to."""
    rig = stage.rows.rig
    until(lambda: any(one.status == 500 for one in stage.rows.requests()), what=rig.tails)
    if stage.is_bugged:
        until(has_erred, what=rig.tails)
    stage.rows.look()
    rig.receiver.turn(poison="", holds_answers=[])


def settled(stage: Stage, count: int) -> list[str]:
    """What is said once so many have come."""
    until(lambda: len(stage.rows.deliveries()) >= count, what=stage.rows.rig.tails)
    stage.rows.rig.until_settled()
    return stage.rows.breaches()


SCENARIOS = {
    killed_while_sending: ["watermark-before-post", "marks-counted-early", "begins-at-the-head", "previous-wrong"],
    killed_before_recording: ["bytes-differ"],
    refused_once: ["refused-batch-skipped"],
    overtaken_while_stopped: ["lane-without-lock"],
    recorded_behind_its_successors_back: ["floor-ignored"],
    read_to_the_end_while_sending: ["end-of-input-is-success"],
    one_row_thrice: ["rows-not-kept-apart"],
    two_of_one_position: ["part-of-a-position-counts"],
}

BUGS = {bug: scenario for scenario, bugs in SCENARIOS.items() for bug in bugs}
Note, Scenario = Callable[[str], None], Callable[[Stage], list[str]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_without_a_bug_nothing_is_reported(stage: Stage, scenario: Scenario) -> None:
    assert scenario(stage) == []


@pytest.mark.parametrize(("bug", "scenario"), BUGS.items(), ids=BUGS)
def test_a_planted_bug_is_reported(stage: Stage, bug: str, scenario: Scenario, note: Note) -> None:
    with stage.bugged(bug):
        found = scenario(stage)
    note(found[0][:100] if found else "nothing")
    assert found


def deposed(stage: Stage) -> dict[str, list[str]]:
    """The leader is stopped past its term with requests under way: one goes before its successor's first, one behind them."""
    leader = stage.ready()
    successor, epoch = stage.standby(leader), stage.far.pipeline_state().epoch
    for rig in (stage.plain.rig, stage.far):
        pause(leader, "sink.sending", rig)
    behind = half(leader, stage.far, writes=True)
    leader.arm("writer.advancing", "pause")  # or it might be stopped while it records, and then send nothing more
    leader.until_reached("writer.advancing", by=behind.pid)
    successor.arm("sink.sending", "pause")
    stage.plain.rig.freeze(leader, stage.far)
    before = len(stage.far.receiver.judged)
    for rig in (stage.plain.rig, stage.far):
        rig.until_outlasted_by(successor)
    successor.until_reached("sink.sending", count=2)  # both: one that starts later repeats nothing
    leader.disarm()
    send(signal.SIGCONT, [one for one in leader.tree()[1:] if one.pid != behind.pid])  # all but the driver, which would end them
    stage.look()
    successor.disarm()
    for rig in (stage.plain.rig, stage.far):
        rig.until_settled()
    leader.arm("writer.advancing", "pause")
    came = len(stage.far.receiver.judged)
    send(signal.SIGCONT, [behind])
    until(lambda: len(stage.far.receiver.judged) > came, what=lambda: f"nothing came of {behind}\n{leader.tail()}")
    leader.disarm()
    send(signal.SIGCONT, leader.tree())
    return {"store": stage.plain.breaches(), "receiver": foreign(stage.far.receiver.judged[before:], epoch + 1)}


@pytest.mark.parametrize("bugs", [(), ("term-not-checked", "epoch-of-the-predecessor")], ids=["no bug", "two bugs"])
def test_a_deposed_leader_is_reported_where_the_store_or_the_number_of_its_term_lets_it_pass(
    stage: Stage, bugs: Sequence[str], note: Note
) -> None:
    with stage.bugged(*bugs):
        found = deposed(stage)
    note(str({where: breaches[:1] for where, breaches in found.items()}))
    assert [bool(breaches) for breaches in found.values()] == [bool(bugs)] * 2
    judged, lenient = stage.far.receiver.judged, FarSide(Lenient(MemoryStore()))
    if not bugs:
        for one in judged:
            lenient.take(dict(one.request.headers), one.request.body)
        assert late(judged)
        assert interleaved(judged) == []
        assert interleaved(lenient.judged), "a receiver that does not refuse lower epochs is reported as well"


def cut_off_while_sending(stage: Stage) -> list[str]:
    """The writer is killed with a request under way, once the source has forgotten those changes, or was settled without that."""
    stage.ready()
    rig = stage.pruned.rig
    rig.shop.sell(1)
    rig.until_settled()
    stage.pruned.begin()
    leader = until(rig.leader, what=rig.tails)  # another process than that of the others, where these were taken over
    pause(leader, "sink.sending", rig)
    with closing(sqlite3.connect(rig.shop.path, timeout=PATIENCE)) as shop:
        if stage.is_bugged:
            until(lambda: first_of(shop) > stage.pruned.base + 1, what=leader.tail)
        stage.until_settled_again("pruned", SETTLES)
    send(signal.SIGKILL, [half(leader, rig, writes=True)])
    leader.disarm()
    until(lambda: rig.position >= rig.shop.head or has_halted(leader, rig), what=leader.tail)
    return stage.pruned.breaches()


def has_halted(program: Program, rig: Rig) -> bool:
    """Whether this pipeline has, and not only another one."""
    return any(one["pipeline"] == rig.name for one in program.events("Halted"))


def first_of(shop: sqlite3.Connection) -> int:
    """The first position that the log still has."""
    [(first,)] = shop.execute("select min(seq) from _penstock_log")
    return int(first)


def test_what_the_source_forgets_before_it_is_delivered_is_reported(stage: Stage) -> None:
    assert cut_off_while_sending(stage) == []
    with stage.bugged("settled-before-delivery"):
        found = cut_off_while_sending(stage)  # behind which the pipeline stops for good
    assert found
