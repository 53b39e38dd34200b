"""How long nobody delivers when a leader dies or falls silent, with a warm standby."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import psutil

from bench.rig import Figure, at_most, keep, quantile, row, shop, wait_until
from penstock.coordinator import Standing
from penstock.coordinators.sqlite import SqliteCoordinator
from penstock.testing.receiver import ReceiverProcess

KILLS, STOPS = 5, 5
PATIENCE = 180.0


def measure() -> list[Figure]:
    """Seconds from the signal to the first change of the next term at the receiver; changes are made all the time."""
    with tempfile.TemporaryDirectory() as temporary, ReceiverProcess(Path(temporary, "requests")) as receiver:
        database = shop(folder := Path(temporary), f"{{type: webhook, url: '{receiver.url}'}}")
        with Pair(folder, receiver, database) as pair:
            stops = [pair.stopped() for _ in range(STOPS)]
            kills = [pair.killed() for _ in range(KILLS)]
    ttl = SqliteCoordinator(path="").ttl
    figures = [
        at_most("takeover after kill -9, median", quantile(kills, 0.5), "s", 2),
        Figure("takeover after kill -9, worst", max(kills), "s"),
        at_most("takeover after SIGSTOP, median", quantile(stops, 0.5), "s", ttl + 2),
        Figure("takeover after SIGSTOP, worst", max(stops), "s"),
        Figure("length of a term", ttl, "s"),
    ]
    keep("takeover", figures, {"kills": kills, "stops": stops})
    return figures


class Pair:
    """Two processes on one pipeline."""

    def __init__(self, folder: Path, receiver: ReceiverProcess, database: sqlite3.Connection) -> None:
        self._folder, self._receiver, self._database = folder, receiver, database
        self._state, self._numbers = SqliteCoordinator(path=str(folder / "penstock.db")), count(1)
        self._logs: dict[int, Path] = {}
        self._team = [self._start(), self._start()]

    def killed(self) -> float:
        """The driver is killed, as by the kernel when memory is short; a new process takes the place of the standby."""
        leader, epoch = self._ready()
        began = time.time()
        leader.kill()
        seconds = self._first_of_later(epoch) - began
        leader.wait()
        self._team = [one for one in self._team if one is not leader] + [self._start()]
        return seconds

    def stopped(self) -> float:
        """All of it stands still, as in a virtual machine that is paused, and comes back once the other one leads."""
        leader, epoch = self._ready()
        root = psutil.Process(leader.pid)
        tree = [root, *root.children(recursive=True)]
        began = time.time()
        for process in tree:
            process.send_signal(signal.SIGSTOP)
        seconds = self._first_of_later(epoch) - began
        for process in tree:
            process.send_signal(signal.SIGCONT)
        return seconds

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "run", str(self._folder / "pipeline.yaml"), "--log-format", "json"]
        log = self._folder / f"run.{next(self._numbers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        self._logs[process.pid] = log
        return process

    def _ready(self) -> tuple[subprocess.Popen[bytes], int]:
        """The leader and its epoch, once the other one stands by."""
        standing = wait_until(self._held, PATIENCE)
        pid = int(standing.holder.split(":")[1])
        [leader] = [one for one in self._team if one.pid == pid]
        [other] = [one for one in self._team if one is not leader]
        wait_until(lambda: self._stands_by(other), PATIENCE)
        self._first_of_later(standing.epoch - 1)
        return leader, standing.epoch

    def _held(self) -> Standing | None:
        standing = self._state.standing("bench")
        return standing if standing.is_held else None

    def _stands_by(self, process: subprocess.Popen[bytes]) -> bool:
        told = [json.loads(line)["event"] for line in self._logs[process.pid].read_text().splitlines() if line.startswith("{")]
        standing = [event for event in told if event in ("StandingBy", "Led")]
        return bool(standing) and standing[-1] == "StandingBy"

    def _first_of_later(self, epoch: int) -> float:
        return float(wait_until(lambda: self._arrived(epoch), PATIENCE))

    def _arrived(self, epoch: int) -> float | None:
        self._database.execute("insert into orders values (?,?,?,?,?,?,?)", row(next(self._numbers)))
        later = (one for one in self._receiver.requests if int(one.headers["penstock-epoch"]) > epoch)
        return next((one.at for one in later), None)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._team:
            process.send_signal(signal.SIGTERM)
        for process in self._team:
            process.wait(60)
