"""One contender through all rates, then through a backlog; counted at the receiver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.arrivals import Arrival, arrivals, newest
from bench.peers.contenders import Contender
from bench.peers.results import Drain, Paced, drain, pace
from bench.peers.writers import paced
from bench.rig import Tree, wait_until

SIZE, WARM_RATE, LEAD_SECONDS = 10, 5_000, 3
BACKLOG_SIZE = 100
PATIENCE = 300.0


class Course:
    """The ids go on growing, so that every change is told from every other."""

    def __init__(self, contender: Contender, out: Path, say: Callable[[str], None]) -> None:
        self._contender, self._out, self._say, self._next = contender, out, say, 1
        out.write_bytes(b"")  # what is left of a contender that failed has the same ids

    def paced(self, rates: Sequence[int], seconds: int) -> list[Paced]:
        """Warmed up, then each rate for some seconds."""
        with self._contender.running() as tree:
            self._wait(tree, self._contender.is_ready)
            self._say("warming up")
            self._write(WARM_RATE, seconds)
            self._arrive(tree)
            return [self._at(rate, seconds, tree) for rate in rates]

    def drained(self, backlog: int) -> Drain:
        """Everything was written while nobody ran; the first third of it is warming up."""
        self._say("writing a backlog")
        first = self._next
        for _ in range(backlog // BACKLOG_SIZE):
            self._contender.writer.write(self._next, BACKLOG_SIZE)
            self._next += BACKLOG_SIZE
        self._say("draining it")
        began = time.time()
        with self._contender.running() as tree:
            self._arrive(tree)
        return drain(self._collect(first), began)

    def _at(self, rate: int, seconds: int, tree: Tree) -> Paced:
        self._say(f"{rate:,} changes/s")
        self._write(rate, LEAD_SECONDS)
        first, engine, database, writer = self._next, tree.cpu_seconds(), self._contender.database_seconds(), time.process_time()
        self._write(rate, seconds)
        writer = time.process_time() - writer
        self._arrive(tree)
        engine, database = tree.cpu_seconds() - engine, self._contender.database_seconds() - database
        return pace(rate, self._collect(first), engine, database + writer)

    def _write(self, rate: int, seconds: int) -> None:
        paced(self._contender.writer, self._next, rate * seconds, rate, SIZE)
        self._next += rate * seconds

    def _arrive(self, tree: Tree) -> None:
        self._wait(tree, lambda: newest(self._out) >= self._next - 1)

    def _wait(self, tree: Tree, condition: Callable[[], bool]) -> None:
        """Until then, or until the contender has died."""
        wait_until(lambda: condition() or tree.process.poll() is not None, PATIENCE, every=0.2)
        if tree.process.poll() is not None:
            raise RuntimeError(
                f"{type(self._contender).__name__} ended by itself: {(self._contender.folder / 'run.log').read_text()[-2000:]}"
            )

    def _collect(self, first: int) -> list[Arrival]:
        """All of them, or it does not count."""
        came = list(arrivals(self._out, first, self._next - 1))
        if len(came) != self._next - first:
            raise RuntimeError(f"{len(came)} of {self._next - first} changes came")
        os.truncate(self._out, 0)
        return came
