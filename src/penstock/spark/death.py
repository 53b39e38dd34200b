"""A worker process that ended in a call of the user's function: the change and the cause."""

from __future__ import annotations

import hashlib
import re
import signal
from dataclasses import dataclass
from datetime import timedelta

from penstock.change import Change, described
from penstock.errors import EngineFailed, TransformInvalid
from penstock.retry import Retry
from penstock.transform.function import way_on

Name = tuple[int, str]
"""The identity of a change across restarts."""

LONGEST_KEY = 4096
"""Characters of a key that fit into the file of calls."""

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)


def name_of(change: Change) -> Name:
    """The position of a change; for a row of a range, which has another position in each read, its table and key or a digest."""
    if change.ordinal is None:
        return change.position, ""
    key = change.key_text
    if len(key) > LONGEST_KEY:
        key = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return 0, f"{change.table}\0{key}"


@dataclass(frozen=True, slots=True)
class Death:
    """`tries` workers ended in a call with one change; `how` and `where` the last one ended; `change` once it was read again."""

    tries: int
    how: str
    where: str = ""
    change: str = ""

    def error(self, function: str, change: Change) -> TransformInvalid:
        """The error of a change that is poison."""
        return TransformInvalid(
            f"transform.function {function} {self._what(described(change))}, in {self.tries} of {self.tries} tries",
            f"correct the function{_else(self.how)}; {way_on(change)}",
        )

    def trouble(self, function: str, retry: Retry) -> EngineFailed:
        """The error of a change that is tried again."""
        end = f"after {retry.tries} tries it is poison" if retry.tries != "forever" else "it is tried again for ever"
        what = self._what(self.change or "a change that is being read again")
        return EngineFailed(
            f"transform.function {function} {what}; try {self.tries} failed", f"correct the function{_else(self.how)}; {end}"
        )

    def _what(self, change: str) -> str:
        return f"{self.how}{self.where} on {change}"


def how_it_ended(code: int | None, limit: timedelta) -> str:
    """The end of a call, by the exit code of its worker, or the negative number of a signal."""
    if code is None:
        return "ended its worker process"
    if code >= 0:
        return f"ended its worker process with exit code {code}"
    if code == -signal.SIGALRM:
        return f"did not return within {limit.total_seconds():g} s"
    return f"ended its worker process with {_signal(-code)}"


def place_in(trace: str, module: str | None) -> str:
    """The place of a call in a stack trace: the innermost line of the function's module, or of any module."""
    frames = [(found["file"], found["line"]) for found in _FRAME.finditer(trace)]
    own = [frame for frame in frames if frame[0] == module] or frames[:1]
    return f" at {own[0][0]}:{own[0][1]}" if own else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _else(how: str) -> str:
    if how.startswith("did not return"):
        return " or raise transform.timeout"
    return ", or give the machine more memory if it ran out" if how.endswith("SIGKILL") else ""
