"""Stories whose pipelines share processes: a start of Spark costs more than most promises do."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from deadline import until
from fix_rig import Rig
from program import Program, send

Way = Generator[list[Path] | None, Program, None]
P = TypeVar("P", bound="Part")


class Part(ABC):
    """The pipelines of some tests in a story, and what happened to them, for the tests to judge.

    `way` yields the files for the next process and is resumed when that runs; then it yields, and is resumed when that has ended.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.rigs, self.programs = folder / type(self).__name__.lower(), list[Rig](), list[Program]()
        self.opened, self._way = ExitStack(), self.way()
        self._failure: Exception | None = None

    @abstractmethod
    def way(self) -> Way:
        """All that happens to these pipelines."""

    def brink(self, program: Program) -> None:  # noqa: B027 - most parts have none
        """Bring these pipelines to where changes were sent and are not recorded; the process pauses there and is killed."""

    def rig(self, name: str, **how: Any) -> Rig:
        """Another pipeline."""
        self.rigs.append(made := self.opened.enter_context(Rig(self.folder / name, name, **how)))
        return made

    def attend(self, program: Program) -> None:
        """Note that a process carries these pipelines."""
        for programs in (self.programs, *(rig.programs for rig in self.rigs)):
            programs.append(program)

    def go_on(self, program: Program | None = None) -> list[Path]:
        """Take the next step; the files for the next process."""
        return self._kept(lambda: self._way.send(program) or [])

    def come_to_the_brink(self, program: Program) -> None:
        """As `brink` says, unless it has failed already."""
        if not self._failure:
            self._kept(lambda: self.brink(program))

    def _kept(self, step: Any) -> Any:
        """A failure fails the tests of this part, and ends its way; the other parts go on."""
        try:
            return step()
        except StopIteration:
            return []
        except Exception as failure:  # noqa: BLE001 - the tests of this part raise it
            failure.add_note("\n".join(program.tail() for program in self.programs[-1:]))
            self._failure = failure
            return []

    @property
    def has_failed(self) -> bool:
        """Whether its way has ended before its end."""
        return self._failure is not None

    def told(self) -> Self:
        """This part, once it is over; raises what has failed in it."""
        if self._failure:
            raise self._failure
        return self


class Story:
    """Parts that go through the same processes, one after the other."""

    def __init__(self, folder: Path, *parts: type[Part]) -> None:
        self._folder, self._parts = folder, {kind: kind(folder) for kind in parts}

    def of(self, kind: type[P]) -> P:
        """A part that went well so far."""
        part = self._parts[kind].told()
        assert isinstance(part, kind)
        return part

    def start(self, *arguments: str | Path, **how: Any) -> Program:
        """One process for the files of all parts; answers when each part has done in it whatever it wanted."""
        wanted = {part: part.go_on() for part in self._parts.values()}
        program = Program(self._folder, *(file for files in wanted.values() for file in files), *arguments, **how)
        for part, files in wanted.items():
            if files:
                part.attend(program)
        for part in self._parts.values():
            part.go_on(program)
        return program

    def kill(self, program: Program) -> None:
        """Kill all of it while changes of some parts are sent and not recorded."""
        program.arm("writer.advancing", "pause")
        for part in self._parts.values():
            part.come_to_the_brink(program)
        program.kill_tree()

    def stop(self, program: Program) -> None:
        """Stop it as a supervisor does; one that does not stop is killed, as its exit code tells."""
        try:
            program.terminate()
        except subprocess.TimeoutExpired:
            program.kill_tree()

    def outlive(self, program: Program) -> None:
        """Wait for its end. One that a part which has failed may keep running is stopped; any other is killed."""
        try:
            program.exit_code()
        except subprocess.TimeoutExpired:
            if any(part.has_failed for part in self._parts.values()):
                self.stop(program)
            else:
                program.kill_tree()

    def end(self) -> Self:
        """Resume the parts: the last process has ended."""
        for part in self._parts.values():
            part.go_on()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts.values():
            part.opened.close()


def writers(program: Program, rig: Rig) -> list[psutil.Process]:
    """The processes that write lanes of a pipeline: they hold the locks."""
    return [one for one in program.workers() if _has_a_lane(one, rig)]


def _has_a_lane(process: psutil.Process, rig: Rig) -> bool:
    with suppress(psutil.Error):
        return any(str(rig.folder) in one.path and "/lane." in one.path for one in process.open_files())
    return False


def paused(program: Program, rig: Rig, point: str) -> psutil.Process:
    """Wait until a writer of this pipeline, and not only of another one, pauses at a point that is armed."""

    def found() -> list[psutil.Process]:
        return [one for one in writers(program, rig) if one.pid in program.come_to(point)]

    return until(found, what=lambda: f"none of {rig.name} came to {point}\n{program.tail()}")[0]


def strike(program: Program, rig: Rig, point: str) -> None:
    """Kill the writer of this pipeline at a point that is armed; the writers of others go on from there."""
    send(signal.SIGKILL, [paused(program, rig, point)])
    program.disarm()


def of(events: Sequence[dict[str, Any]], rig: Rig) -> list[dict[str, Any]]:
    """Those of one pipeline."""
    return [event for event in events if event.get("pipeline") == rig.name]
