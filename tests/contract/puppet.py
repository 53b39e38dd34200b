"""A process of its own that stands for a pipeline as it is told, so that tests can kill, stop and continue it."""

from __future__ import annotations

import base64
import json
import pickle
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from typing import Any

from penstock.coordinator import Tally, Term
from penstock.cursor import Watermark
from penstock.errors import PenstockError


class Puppet:
    """The test's end of the strings."""

    def __init__(self, coordinator: Any, pipeline: str, holder: str) -> None:
        part = base64.b64encode(pickle.dumps((coordinator, pipeline, holder))).decode()
        self.process = subprocess.Popen([sys.executable, __file__, part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.heard() == "ready"

    def __enter__(self) -> Puppet:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()

    def told(self, *order: Any) -> Any:
        """Do this, and say what came of it: a value, or the code of an error."""
        self.send(*order)
        return self.heard()

    def send(self, *order: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class _Stage:
    """The puppet's own end."""

    def __init__(self, coordinator: Any, pipeline: str, holder: str) -> None:
        self.coordinator, self.candidate = coordinator, coordinator.candidate(pipeline, holder)
        self.claims = ExitStack()
        self.claim: Any = None

    def campaign(self) -> int | None:
        term = self.candidate.campaign()
        return term.epoch if term else None

    def renew(self) -> None:
        self.candidate.renew()

    def resign(self) -> None:
        self.candidate.resign()

    def hold(self, pipeline: str, holder: str, epoch: int, lane: Any, attempt: int) -> int:
        self.claim = self.claims.enter_context(self.coordinator.claim(Term(pipeline, holder, epoch), lane, attempt))
        return int(self.claim.watermark.position)

    def advance(self, position: int) -> None:
        self.claim.advance(Watermark(f"c{position}", position, position), Tally(1, 1.0))  # type: ignore[arg-type]

    def advance_for_ever(self) -> None:
        position = self.claim.watermark.position
        while True:
            position += 1
            self.advance(position)
            _say(position)

    def place_for_ever(self, pipeline: str, holder: str, epoch: int, lanes: list[Any]) -> None:
        for position in count():
            mark = Watermark(f"c{position}", position, position)  # type: ignore[arg-type]
            self.coordinator.place(Term(pipeline, holder, epoch), dict.fromkeys(lanes, mark))
            _say(position)


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _main() -> None:
    stage = _Stage(*pickle.loads(base64.b64decode(sys.argv[1])))
    _say("ready")
    for line in sys.stdin:
        name, *values = json.loads(line)
        try:
            answer = getattr(stage, name)(*values)
        except PenstockError as error:
            answer = error.code
        _say(answer)


if __name__ == "__main__":
    _main()
