"""The calls of the user's function on one lane, recorded in files of the run that outlive the worker.

A worker that dies in a call leaves the position of the change there, and its successor counts the death. SIGALRM ends a call that
takes too long, without Python code, so that it also ends a C function that does not return.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.change import Change, Lane, described, from_batch
from penstock.errors import TransformInvalid
from penstock.event import CallDied
from penstock.files import privacy
from penstock.retry import Retry
from penstock.spark.death import Death, Name, how_it_ended, name_of, place_in
from penstock.spark.endings import ending_of
from penstock.spark.task_spec import TaskSpec

_POSITION, _LENGTH, _PID, _TEXT = 0, 1, 2, 24
_SIZE = 1 << 16
_NOWHERE = -(1 << 63)
"""The position while no call is under way."""

_REARMS = 10
"""The timer is set again after a tenth of the limit: to set it for each change costs more than a short function."""


class Calls:
    """The calls of one attempt, which counts the death of its predecessor at its start."""

    def __init__(self, spec: TaskSpec, lane: Lane, task: int) -> None:
        digest = hashlib.sha256(lane.encode()).hexdigest()[:12]
        self._calls = Path(spec.own_folder(), f"{spec.pipeline.name}.{digest}.calls")
        self._book, self._trace = self._calls.with_suffix(".deaths"), self._calls.with_suffix(".trace")
        self._spec, self._transform = spec, spec.pipeline.transform
        self._retry = spec.pipeline.sink.retry or Retry()
        self._facts: dict[str, Any] = {"pid": os.getpid(), "task": task, "query": spec.query, "in_row": 0, "at": None}
        self._deaths, self._news = self._inherited()
        self._rearm_at, self._limit = 0.0, self._transform.timeout.total_seconds()
        self._open()

    def trouble_after(self, position: int) -> dict[str, str] | None:
        """The error of a change after this position that ended a worker and is tried again."""
        waiting = [death for death in self._behind(position).values() if not self._retry.is_spent(death.tries)]
        return waiting[-1].trouble(self._name, self._retry).facts() if waiting else None

    def in_row(self, position: int) -> int:
        """The number of consecutive condemned changes up to this position, which is recorded."""
        return int(self._facts["in_row"]) if self._facts["at"] == position else 0

    def enter(self, change: Change) -> None:
        """Record that the function is called with this change."""
        if change.ordinal is None:
            self._slots[_POSITION] = change.position
        else:
            self._note(change)
        if (now := time.monotonic()) > self._rearm_at:
            self._rearm_at = now + self._limit / _REARMS
            signal.setitimer(signal.ITIMER_REAL, self._limit * (1 + 1 / _REARMS))

    def leave(self) -> None:
        """Record that no call is under way."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._slots[_POSITION], self._rearm_at = _NOWHERE, 0.0

    def parts(self, run: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Death | None]]:
        """A run in parts: each change on which a worker has died is a part."""
        begin = 0
        for index, change in enumerate(from_batch(run) if self._deaths else ()):
            if death := self._deaths.get(name_of(change)):
                if index > begin:
                    yield run.slice(begin, index - begin), None
                yield run.slice(index, 1), death
                begin = index + 1
        if begin < run.num_rows:
            yield run.slice(begin), None

    def meet(self, change: Change) -> TransformInvalid | None:
        """Report a change on which workers have died, read again; returns its error once its tries are spent."""
        name = name_of(change)
        death = self._deaths[name] = replace(self._deaths[name], change=described(change))
        if name == self._news:
            self._news = None
            self._spec.emit(self._event(change, death))
        self._save()
        return death.error(self._name, change) if self._retry.is_spent(death.tries) else None

    def survive(self, change: Change) -> None:
        """Forget the deaths on a change, with which the function returned."""
        self._deaths.pop(name_of(change), None)
        self._save()

    def settle(self, in_row: int, position: int) -> None:
        """Record a position that the store has, and the number of consecutive condemned changes up to it."""
        self._facts |= {"in_row": in_row, "at": position}
        self._save()
        self.forget(position)

    def forget(self, position: int) -> None:
        """Forget the deaths up to a recorded position: no change there is read again."""
        left = self._behind(position)
        if len(left) < len(self._deaths):
            self._deaths = left
            self._save()

    def close(self) -> None:
        """Undo the changes to the process."""
        self.leave()
        faulthandler.unregister(signal.SIGALRM)
        if self._enables:
            faulthandler.disable()
        os.close(self._stack)

    @property
    def _name(self) -> str:
        return self._transform.function or ""

    def _behind(self, position: int) -> dict[Name, Death]:
        return {name: death for name, death in self._deaths.items() if name[1] or name[0] > position}

    def _note(self, change: Change) -> None:
        name = name_of(change)[1].encode("utf-8", "surrogatepass")[: _SIZE - _TEXT]
        self._bytes[_TEXT : _TEXT + len(name)] = name
        self._slots[_LENGTH], self._slots[_POSITION] = len(name), 0

    def _event(self, change: Change, death: Death) -> CallDied:
        found = death.trouble(self._name, self._retry)
        return CallDied(
            pipeline=self._spec.pipeline.name,
            position=change.position,
            table=change.table,
            key=change.key_text[:200],
            tries=death.tries,
            code=found.code,
            message=found.message,
        )

    def _inherited(self) -> tuple[dict[Name, Death], Name | None]:
        """The deaths so far, and the name of the change on which the predecessor died."""
        try:
            before = json.loads(self._book.read_text())
        except FileNotFoundError:
            return {}, None
        deaths = {(position, text): Death(**facts) for (position, text), facts in before.pop("deaths")}
        self._facts |= {"in_row": before["in_row"], "at": before["at"]}
        if (name := self._under_way(before["pid"])) and (how := self._end(**before)):
            found = deaths.pop(name, None) or Death(0, "")
            deaths[name] = replace(found, tries=found.tries + 1, how=how, where=self._where())
            return deaths, name
        return deaths, None

    def _under_way(self, pid: int) -> Name | None:
        """The call in which the predecessor ended; None if the file is not its own, and its death is already counted."""
        packed = self._calls.read_bytes() if self._calls.exists() else b""
        if len(packed) < _SIZE:
            return None
        position, length, owner = struct.unpack_from("qqq", packed)
        text = packed[_TEXT : _TEXT + length].decode("utf-8", "surrogatepass")
        return None if position == _NOWHERE or owner != pid else (position, text)

    def _end(self, pid: int, task: int, query: str, **_: Any) -> str | None:
        """The end of the predecessor; None if it was ended because its query stopped, or its reader failed."""
        ending = ending_of(pid)
        asked = replace(self._spec, query=query).asked_at(task)
        if asked is not None and (ending is None or asked < ending.at):
            return None
        return how_it_ended(ending.code if ending else None, self._transform.timeout)

    def _where(self) -> str:
        module = sys.modules.get(self._name.partition(":")[0])
        with suppress(FileNotFoundError):
            return place_in(self._trace.read_text(errors="replace"), getattr(module, "__file__", None))
        return ""

    def _open(self) -> None:
        """Create new files: a predecessor that still runs keeps its own. Deaths are saved first, so that none counts twice."""
        self._save()
        draft = self._calls.with_suffix(".begun")
        with open(_begun(draft), "r+b") as file:
            file.truncate(_SIZE)
            self._bytes = memoryview(mmap.mmap(file.fileno(), _SIZE))
        self._slots = self._bytes.cast("q")
        self._slots[_POSITION], self._slots[_PID] = _NOWHERE, self._facts["pid"]
        draft.rename(self._calls)
        self._stack = _begun(self._trace)
        faulthandler.register(signal.SIGALRM, self._stack, all_threads=False, chain=True)
        self._enables = not faulthandler.is_enabled()
        if self._enables:
            faulthandler.enable(self._stack, all_threads=False)

    def _save(self) -> None:
        draft = self._book.with_suffix(".draft")
        facts = self._facts | {"deaths": [[list(name), asdict(death)] for name, death in self._deaths.items()]}
        with open(_begun(draft), "w") as file:
            json.dump(facts, file)
        draft.rename(self._book)


def _begun(path: Path) -> int:
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, privacy.FILE)


class Refusal:
    """Prevents the call of the function with a change that is poison."""

    def __init__(self, error: TransformInvalid) -> None:
        self._error = error

    def enter(self, change: Change) -> None:
        """Raise the error of the change."""
        raise self._error

    def leave(self) -> None:
        """Do nothing."""
