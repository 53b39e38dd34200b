"""Breaks things at random, by seed, while a pipeline runs; restarts what died; heals everything at the end."""

from __future__ import annotations

import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

import psutil

from deadline import PATIENCE, until
from fix_rig import Rig
from penstock import failpoint
from program import Program, altered_by, is_dead, send

RATES = (0.1, 0.5, 0.9)
FAULTS = ("fail_rate", "hang_rate", "cut_rate", "lose_rate")
DAY = 86400.0
ELSEWHERE = ("sink.purging", "writer.parking", "writer.parked")  # only by delivery barrier, or with rows that are too large
POINTS = {
    point
    for file in Path(failpoint.__file__).parent.rglob("*.py")
    for point in re.findall(r'\breach\("([a-z]+\.[a-z]+)"\)', file.read_text())
}
PASSED = tuple(sorted(POINTS.difference(ELSEWHERE)))

T = TypeVar("T")
Step = Callable[[Any], None]


class Nemesis:
    """A leader and a standby, and what is done to them."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig, self._chance, self.counts, self.kills = rig, Random(seed), Counter[str](), Counter[str]()
        self._offset = rig.folder / "clock"
        self._offset.write_text("0")
        self._team = [self._recruit(), self._recruit()]

    def torment(self, steps: int) -> None:
        """So many steps, dealt by seed from the decks."""
        self._torment(islice(self._dealt(), steps))

    def torment_until(self, is_enough: Callable[[], bool]) -> None:
        """Steps drawn at random until that is enough, then each kind that was not drawn."""
        drawn = iter(lambda: None if is_enough() else self._chance.choice(self.STEPS), None)
        left = (step for step in dict.fromkeys(self.STEPS) if not self.counts[step.__name__.strip("_")])
        self._torment(chain(drawn, left))

    def heal(self) -> None:
        """End every fault, and see two processes at work: from here on no process may fail."""
        self._turn_back()
        for program in self._team:
            send(signal.SIGCONT, program.tree())
            program.disarm()
        self._until_at_work()

    def end(self) -> list[int]:
        """Stop both as a supervisor does; their exit codes."""
        return [program.terminate() for program in self._team]

    def tails(self) -> str:
        """The ends of the team's logs."""
        return "\n".join(f"--- process {program.pid} of the team\n{program.tail(60)}" for program in self._team)

    def _torment(self, steps: Iterable[Step]) -> None:
        """Take these steps, most of them followed by proof that the pipeline goes on."""
        self._until_progress()
        for step in steps:
            self.counts[step.__name__.strip("_")] += 1
            step(self)
            self._replace_dead()
            if self._chance.random() < 0.7:
                self._until_progress()

    def _dealt(self) -> Iterator[Step]:
        """Ten steps at a time, so many of each deck, in random order; none comes again before the rest of its deck."""
        decks = [(self._shuffled(deck), count) for deck, count in self.DECKS]
        while True:
            ten = [step for deck, count in decks for step in islice(deck, count)]
            yield from self._chance.sample(ten, len(ten))

    def _shuffled(self, deck: Sequence[Step]) -> Iterator[Step]:
        while True:
            yield from self._chance.sample(deck, len(deck))

    def _recruit(self) -> Program:
        return self._rig.start(env={**altered_by("lies"), "PENSTOCK_TEST_CLOCK": str(self._offset)})

    def _replace_dead(self) -> None:
        """New processes for those that died; hardly any may end by itself."""
        for i, program in enumerate(self._team):
            if not program.is_running():
                code = program.exit_code()
                assert code == -signal.SIGKILL or self._is_excused(program), f"ended with {code}:\n{program.tail()}"
                self._team[i] = self._recruit()

    def _is_excused(self, program: Program) -> bool:
        """One whose JVM was killed twice within a minute, and says so."""
        return "engine.lost" in program.said()

    def _until_at_work(self) -> None:
        """Wait until one process leads and delivers a new change, and the other stands by."""
        until(self._keeping_two(self._are_at_work), what=self.tails)
        self._change()
        self._until_progress()

    def _are_at_work(self) -> bool:
        """Whether the store knows a leader and a standby of the team, each with a JVM; one that is still starting is not known."""
        is_led = self._rig.leader() in self._team and self._rig.pipeline_state().standbys >= 1
        return is_led and all(program.jvm() for program in self._team)

    def _change(self) -> None:
        self._rig.shop.sell(1)

    def _until_progress(self) -> None:
        """Wait until what is committed by now has been delivered and recorded."""
        head = self._rig.shop.head
        until(self._keeping_two(lambda: self._rig.position >= head), what=lambda: f"stuck before {head}\n{self.tails()}")

    def _until_taken_over_from(self, victim: Program) -> None:
        """Wait until another process leads; the terms of the victim expire by the clocks of the others."""

        def is_taken_over() -> bool:
            if self._rig.leader() not in (victim, None):
                return True
            self._outlast(victim)
            return False

        until(self._keeping_two(is_taken_over), what=lambda: f"no process took over\n{self.tails()}")

    def _outlast(self, victim: Program) -> None:
        """Make a term pass for all but the victim."""
        self._rig.outlast(*(program for program in self._team if program is not victim))

    def _keeping_two(self, condition: Callable[[], T]) -> Callable[[], T]:
        def kept() -> T:
            self._replace_dead()
            return condition()

        return kept

    def _victim(self) -> Program:
        return self._rig.leader() or self._chance.choice(self._team)

    def _dwell(self, most: float) -> None:
        time.sleep(self._chance.uniform(0.2, most))

    def _turn_back(self) -> None:
        self._rig.receiver.turn(**dict.fromkeys(FAULTS, 0.0), slow=0.0)
        self._offset.write_text("0")

    def _kill(self, what: str, processes: list[psutil.Process]) -> None:
        self.kills[what] += bool(processes)
        send(signal.SIGKILL, processes)
        until(lambda: all(map(is_dead, processes)), what=lambda: f"these survived: {processes}")

    def _kill_the_whole_tree(self) -> None:
        self._victim().kill_tree()
        self.kills["whole tree"] += 1

    def _kill_a_standby(self) -> None:
        for program in [one for one in self._team if one is not self._rig.leader()][:1]:
            program.kill_tree()
            self.kills["standby"] += 1

    def _kill_the_driver(self) -> None:
        victim = self._victim()
        self._kill("driver", victim.tree()[:1])
        victim.process.wait(PATIENCE)
        victim.assert_gone()

    def _kill_the_engine(self) -> None:
        victim = self._victim()
        if victim.events() and (engine := victim.jvm()):  # one that is still starting would cost everybody the class archive
            self._kill("engine", [engine])

    def _kill_a_worker(self) -> None:
        if workers := self._victim().workers():
            self._kill("worker", [self._chance.choice(workers)])

    def _kill_at_a_point(self) -> None:
        victim, point = self._victim(), self._chance.choice(PASSED)
        victim.arm(point, "kill")
        self._dwell(2)
        self.kills[f"at {point}"] += not (victim.failpoints / point).exists()
        victim.disarm()

    def _stop_a_worker_for_a_while(self) -> None:
        workers = self._victim().workers()
        send(signal.SIGSTOP, workers[-1:])
        self._dwell(1.5)
        send(signal.SIGCONT, workers[-1:])

    def _stop_the_leader_past_its_term(self) -> None:
        victim = self._victim()
        self._rig.freeze(victim)
        self._until_taken_over_from(victim)
        if self._chance.random() < 0.5:
            self._until_progress()
        send(signal.SIGCONT, victim.tree())

    def _let_the_receiver_fail(self) -> None:
        fault, rate = self._chance.choice(FAULTS), self._chance.choice(RATES)
        self._rig.receiver.turn(**{fault: rate}, statuses=[500, 429, 503], seed=self._chance.randrange(1 << 30))
        self._dwell(3)
        self._turn_back()

    def _let_the_receiver_be_slow(self) -> None:
        self._rig.receiver.turn(slow=self._chance.choice((0.05, 0.3, 1.5)))
        self._dwell(3)
        self._turn_back()

    def _lock_the_state_file(self) -> None:
        """For more than a term: a leader that cannot renew stands down."""
        with closing(sqlite3.connect(self._rig.state.path, timeout=PATIENCE, isolation_level=None)) as other:
            other.execute("begin immediate")
            self._rig.outlast(*self._team)
            self._dwell(5)
            other.execute("rollback")

    def _let_the_state_refuse(self) -> None:
        """For one process alone, for more than a term: the other can write, and takes over."""
        victim = self._victim()
        victim.arm("state.refusing", "refuse")
        self._rig.outlast(*self._team)
        self._dwell(3)
        victim.disarm()

    def _fill_the_disk(self) -> None:
        """Under the database and the state: what grows fails, for the shop and for every process."""
        self._rig.shop.has_room = False
        for program in self._team:
            program.arm("disk.full", "fill")
        self._rig.outlast(*self._team)
        self._dwell(5)
        for program in self._team:
            program.disarm()
        self._rig.shop.has_room = True

    def _step_the_clock(self) -> None:
        self._offset.write_text(str(self._chance.uniform(-DAY, DAY)))

    def _pause_at_a_point(self) -> None:
        victim = self._victim()
        victim.arm(self._chance.choice(PASSED), "pause")
        self._dwell(2)
        victim.disarm()

    DEAR = (_kill_the_whole_tree, _kill_a_standby, _kill_the_driver, _kill_the_engine, _kill_at_a_point)
    """Each may cost a start of Spark."""
    CHEAP = (
        _kill_a_worker,
        _stop_a_worker_for_a_while,
        _stop_the_leader_past_its_term,
        _let_the_receiver_fail,
        _let_the_receiver_be_slow,
        _lock_the_state_file,
        _let_the_state_refuse,
        _fill_the_disk,
        _step_the_clock,
        _pause_at_a_point,
    )
    DECKS: ClassVar[Sequence[tuple[Sequence[Step], int]]] = ((DEAR, 2), (CHEAP, 8))
    """Of what ten steps are dealt, and how many of each."""
    STEPS: Sequence[Step] = (
        *DEAR,
        *CHEAP,
        *(_kill_a_worker, _let_the_receiver_fail) * 3,
        _pause_at_a_point,
        _kill_at_a_point,
    )
    """Of what a campaign draws, the frequent ones more than once."""
