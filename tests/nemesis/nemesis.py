"""Breaks things at random, by seed, while a pipeline runs; restarts what died; heals everything at the end."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import TypeVar

import psutil

from deadline import PATIENCE, until
from fix_rig import Rig
from penstock.failpoint import POINTS
from program import Program, altered_by, send

RATES = (0.1, 0.5, 0.9)
FAULTS = ("fail_rate", "hang_rate", "cut_rate", "lose_rate")
DAY = 86400.0
PASSED = tuple(point for point in POINTS if point != "sink.purging")  # that one only by delivery barrier

T = TypeVar("T")


class Nemesis:
    """A leader and a standby, and what is done to them."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig, self._chance, self.counts, self.kills = rig, Random(seed), Counter[str](), Counter[str]()
        self._offset = rig.folder / "clock"
        self._offset.write_text("0")
        self._team = [self._recruit(), self._recruit()]

    def torment(self, seconds: float) -> None:
        """Steps for so long."""
        ends_at = time.monotonic() + seconds
        self.torment_until(lambda: time.monotonic() >= ends_at)

    def torment_until(self, is_enough: Callable[[], bool]) -> None:
        """Steps until that is enough, most of them followed by proof that the pipeline goes on."""
        self._until_progress()
        while not is_enough():
            step = self._chance.choice(self.STEPS)
            self.counts[step.__name__.strip("_")] += 1
            step(self)
            self._replace_dead()
            if self._chance.random() < 0.7:
                self._until_progress()

    def heal(self) -> None:
        """End every fault, and see that two processes are at work."""
        self._turn_back()
        for program in self._team:
            send(signal.SIGCONT, program.tree())
            program.disarm()
        until(self._keeping_two(lambda: all(program.events() for program in self._team)), what=self._rig.tails)

    def end(self) -> list[int]:
        """Stop both as a supervisor does; their exit codes."""
        return [program.terminate(120) for program in self._team]

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
        """One whose JVM was killed twice within a minute, or who could not use the state when it started, and says so."""
        has_begun = program.events("Led") or program.events("StandingBy")
        return "engine.lost" in program.said() or ("state.unavailable" in program.said() and not has_begun)

    def _until_progress(self) -> None:
        """Wait until what is committed by now has been delivered and recorded."""
        head = self._rig.shop.head
        until(self._keeping_two(lambda: self._rig.position >= head), 300, lambda: f"stuck before {head}\n{self._rig.tails()}")

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
        until(lambda: self._rig.leader() not in (victim, None), what=lambda: f"nobody took over\n{self._rig.tails()}")
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
        with closing(sqlite3.connect(self._rig.state.path, timeout=10, isolation_level=None)) as other:
            other.execute("begin immediate")
            self._dwell(8)
            other.execute("rollback")

    def _let_the_state_refuse(self) -> None:
        """For one process alone: the other can write, and takes over."""
        victim = self._victim()
        victim.arm("state.refusing", "refuse")
        self._dwell(8)
        victim.disarm()

    def _step_the_clock(self) -> None:
        self._offset.write_text(str(self._chance.uniform(-DAY, DAY)))

    def _pause_at_a_point(self) -> None:
        victim = self._victim()
        victim.arm(self._chance.choice(PASSED), "pause")
        self._dwell(2)
        victim.disarm()

    STEPS = (
        _kill_the_whole_tree,
        _kill_a_standby,
        _kill_the_driver,
        _kill_the_engine,
        *(_kill_a_worker,) * 4,
        _stop_a_worker_for_a_while,
        _stop_the_leader_past_its_term,
        *(_let_the_receiver_fail,) * 4,
        _let_the_receiver_be_slow,
        _lock_the_state_file,
        _let_the_state_refuse,
        _step_the_clock,
        *(_pause_at_a_point,) * 2,
        *(_kill_at_a_point,) * 2,
    )
