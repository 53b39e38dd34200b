"""`penstock run` as a process that tests start, watch, stop, kill and continue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from deadline import PATIENCE, until

_MARK = "PENSTOCK_TEST_MARK"

# It dies with the tests, however these end; and the leader of a new session that opens a terminal gets it, and with it Ctrl-C.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.isatty(0):
    os.open(os.ttyname(0), os.O_RDWR)
os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])
"""


class Program:
    """One process tree; every process in it carries a mark in its environment, so that none can hide."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        tty: int | None = None,
        armed: Mapping[str, str] | None = None,
    ) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        self.failpoints, self._log = folder / f"failpoints-{self.mark}", folder / f"{self.mark}.log"
        self.failpoints.mkdir()
        for point, deed in (armed or {}).items():
            self.arm(point, deed)
        told = {**os.environ, **(env or {}), _MARK: self.mark, "PENSTOCK_FAILPOINTS": str(self.failpoints)}
        command = [sys.executable, "-c", _LAUNCH, "run", "--log-format", "json", "--verbose", *map(str, arguments)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=told, stdin=subprocess.DEVNULL if tty is None else tty, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = self.process.pid

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What it has told so far."""
        found = [json.loads(line) for line in self.said().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in found if kind in (None, event["event"])]

    def said(self) -> str:
        """All its output."""
        return self._log.read_text(errors="replace")

    def until_event(self, kind: str, within: float = PATIENCE, count: int = 1, **facts: Any) -> dict[str, Any]:
        """Wait for the so-manieth event of this kind with these facts; fails at once when the process has ended."""

        def found() -> list[dict[str, Any]]:
            is_over = not self.is_running()
            events = [event for event in self.events(kind) if facts.items() <= event.items()]
            if is_over and len(events) < count:
                raise AssertionError(f"ended with {self.process.returncode} before {kind}:\n{self.tail()}")
            return events[count - 1 :]

        return until(found, within, lambda: f"{count} x {kind} {facts}\n{self.tail()}")[0]

    def tail(self, lines: int = 30) -> str:
        """The end of its output, and with what any of its pipelines has halted before that."""
        said = self.said().splitlines()
        return "\n".join([*(line for line in said[:-lines] if '"event":"Halted"' in line), *said[-lines:]])

    def is_running(self) -> bool:
        return self.process.poll() is None

    def exit_code(self, within: float = PATIENCE) -> int:
        """Wait for its end; then nothing of its tree may be left."""
        code = self.process.wait(within)
        self.assert_gone()
        return code

    def terminate(self, within: float = PATIENCE) -> int:
        """Stop it as a supervisor does."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code(within)

    def tree(self) -> list[psutil.Process]:
        """Every living process that carries the mark, the first one first."""
        wanted, found = f"{_MARK}={self.mark}".encode(), []
        for pid in psutil.pids():
            try:
                if wanted in Path(f"/proc/{pid}/environ").read_bytes():
                    process = psutil.Process(pid)  # made anew: one that is kept for a number used again takes no signal
                    found += [process] if process.status() != psutil.STATUS_ZOMBIE else []
            except (OSError, psutil.NoSuchProcess):
                continue
        return sorted(found, key=lambda process: (process.pid != self.pid, process.pid))

    def jvm(self) -> psutil.Process | None:
        return next((process for process in self.tree() if _name(process) == "java"), None)

    def workers(self) -> list[psutil.Process]:
        """The Python processes that Spark has started: the daemon and what it forked."""
        return [process for process in self.tree() if process.pid != self.pid and _name(process) != "java"]

    def kill_tree(self) -> None:
        """kill -9 of everything, as one blow."""
        send(signal.SIGKILL, self.tree())
        self.process.kill()  # one that is just becoming our program has no mark for a moment
        self.process.wait(PATIENCE)
        self.assert_gone()

    def assert_gone(self, within: float = PATIENCE) -> None:
        """Nothing with the mark is alive any more."""
        until(lambda: not self.tree(), within, lambda: f"these survived: {self.tree()}")

    def arm(self, point: str, deed: str) -> None:
        """Let whoever comes to this point be killed or pause there."""
        order = self.failpoints / point
        (self.failpoints / f"{point}.reached").unlink(missing_ok=True)
        order.with_name(".new").write_text(deed)
        order.with_name(".new").rename(order)

    def until_reached(self, point: str, within: float = PATIENCE, count: int = 1, by: int | None = None) -> None:
        """Wait until so many processes pause at this point, this one among them, or one was killed there."""

        def have_come() -> bool:
            return len(here := self.come_to(point)) >= count and (by is None or by in here)

        order = self.failpoints / point
        until(lambda: have_come() or not order.exists(), within, lambda: f"{self.come_to(point)} came to {point}\n{self.tail()}")

    def come_to(self, point: str) -> set[int]:
        """The processes that pause at this point."""
        reached = self.failpoints / f"{point}.reached"
        return set(map(int, reached.read_text().split())) if reached.exists() else set()

    def release(self, point: str) -> None:
        """Let whoever pauses at this point go on."""
        (self.failpoints / point).unlink()

    def skip(self, seconds: float) -> None:
        """Advance the clock by which the process judges terms; the seconds add up."""
        clock = self.failpoints / "clock.ahead"
        before = float(clock.read_text()) if clock.exists() else 0.0
        clock.with_name(".ahead").write_text(str(before + seconds))
        clock.with_name(".ahead").rename(clock)

    def hold_back(self) -> None:
        """Set that clock back by an hour: no silence that the process watches becomes a term long while a test waits."""
        self.skip(-3600)

    def disarm(self) -> None:
        """Let everybody go on."""
        for order in self.failpoints.iterdir():
            if order.name != "clock.ahead":  # a clock does not go back
                order.unlink(missing_ok=True)


def status(*files: Path) -> tuple[int, list[dict[str, Any]]]:
    """What `penstock status --json` answers: its exit code, and an object for each pipeline."""
    command = [sys.executable, "-m", "penstock", "status", "--json", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def altered_by(*names: str) -> dict[str, str]:
    """The environment of a process that these modules of tests/site alter."""
    return {"PENSTOCK_TEST_SITE": ",".join(names)}


def send(number: int, processes: Iterable[psutil.Process]) -> None:
    """Signal these; those that have just gone do not matter."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def is_dead(process: psutil.Process) -> bool:
    """Whether it has ended, collected by its parent or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
