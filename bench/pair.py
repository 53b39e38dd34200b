"""Two processes on one pipeline, one of which is killed or stopped, and how long nobody delivers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from bench.rig import Tree, wait_until

PATIENCE = 180.0


class Outage(NamedTuple):
    """Seconds until somebody else leads, and until a change of theirs has come."""

    led: float
    delivered: float


def moment(fact: Mapping[str, Any]) -> float:
    """When it was told."""
    return datetime.fromisoformat(fact["at"]).timestamp()


class Pair:
    """A leader and a standby. `change` makes a change, `arrivals` are the times at which changes came, in order."""

    def __init__(self, folder: Path, change: Callable[[], object], arrivals: Callable[[], Sequence[float]]) -> None:
        self._folder, self._change, self._arrivals, self._numbers = folder, change, arrivals, count(1)
        self._logs: dict[int, Path] = {}
        self._team = [self._start(), self._start()]

    def killed(self) -> Outage:
        """From the kill of the driver, as by the kernel when memory is short; a new process becomes the standby."""
        leader, epoch = self._ready()
        began = time.time()
        leader.kill()
        outage = self._outage(epoch, began)
        leader.wait()
        self._team = [one for one in self._team if one is not leader] + [self._start()]
        return outage

    def stopped(self) -> Outage:
        """All of it stands still, as in a virtual machine that is paused, and comes back once the other one leads."""
        leader, epoch = self._ready()
        members = Tree(leader).members()
        began = time.time()
        for process in members:
            process.send_signal(signal.SIGSTOP)
        outage = self._outage(epoch, began)
        for process in members:
            process.send_signal(signal.SIGCONT)
        return outage

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "run", str(self._folder / "pipeline.yaml"), "--log-format", "json"]
        log = self._folder / f"run.{next(self._numbers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        self._logs[process.pid] = log
        return process

    def _ready(self) -> tuple[subprocess.Popen[bytes], int]:
        """The leader and its epoch, once it delivers and the other one stands by."""
        epoch, leader = wait_until(self._led, PATIENCE)
        [other] = [one for one in self._team if one is not leader]
        wait_until(lambda: self._stands_by(other), PATIENCE)
        self._first_of_later(epoch - 1)
        return leader, epoch

    def _led(self) -> tuple[int, subprocess.Popen[bytes]] | None:
        """The latest epoch and who led it."""
        led = [(fact["epoch"], one) for one in self._team for fact in self._told(one, "Led")]
        return max(led, key=itemgetter(0), default=None)

    def _stands_by(self, process: subprocess.Popen[bytes]) -> bool:
        told = self._told(process, "StandingBy", "Led")
        return bool(told) and told[-1]["event"] == "StandingBy"

    def _told(self, process: subprocess.Popen[bytes], *events: str) -> list[dict[str, Any]]:
        lines = [line for line in self._logs[process.pid].read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [fact for fact in map(json.loads, lines) if fact["event"] in events]

    def _outage(self, epoch: int, began: float) -> Outage:
        delivered = self._first_of_later(epoch)
        led = min(moment(fact) for one in self._team for fact in self._told(one, "Led") if fact["epoch"] > epoch)
        return Outage(led - began, delivered - began)

    def _first_of_later(self, epoch: int) -> float:
        return float(wait_until(lambda: self._arrived(epoch), PATIENCE))

    def _arrived(self, epoch: int) -> float | None:
        """When the first change came after a later leader had the lane: from then on it is nobody else's."""
        self._change()
        claims = [fact for one in self._team for fact in self._told(one, "LaneClaimed") if fact["epoch"] > epoch]
        since = min(map(moment, claims), default=None)
        return None if since is None else next((at for at in self._arrivals() if at > since), None)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._team:
            process.send_signal(signal.SIGTERM)
        for process in self._team:
            process.wait(60)
