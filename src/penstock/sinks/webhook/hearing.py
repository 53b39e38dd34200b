"""Inquests beside everything else: who holds them, on lines of their own, while the others go on."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock
from typing import NamedTuple

from penstock.sinks.webhook.courier import Courier, Equipment
from penstock.sinks.webhook.inquest import Inquest
from penstock.sinks.webhook.line import Answer, Line
from penstock.sinks.webhook.schedule import Waiting


class Case(NamedTuple):
    """An inquest, and the answer that it began with."""

    inquest: Inquest
    answer: Answer


class Hearings:
    """Each inquest that is given away goes to a courier who has none; another one is engaged if there is no such."""

    def __init__(self, line: Callable[[], Line], equipment: Equipment) -> None:
        self.couriers: list[Courier] = []
        self._line, self._equipment, self._dispatch = line, equipment, equipment.dispatch
        self._cases: SimpleQueue[Case | None] = SimpleQueue()
        self._lock, self._idle, self._is_over = Lock(), 0, False

    def take_over(self, inquest: Inquest, answer: Answer) -> bool:
        """Whether somebody holds this inquest from now on, and its changes hold up only what shares a row with them."""
        with self._lock:
            if self._is_over or not self._dispatch.set_aside([one for part in inquest.parts for one in part.changes]):
                return False
            if self._idle:
                self._idle -= 1
            else:
                self.couriers.append(Coroner(self._line(), self._equipment, self))
                self.couriers[-1].start()
            self._cases.put(Case(inquest, answer))
            return True

    def next(self) -> Case | None:
        """Wait for an inquest; None at the end."""
        return self._cases.get()

    def close(self) -> None:
        """Whoever held one has none any more."""
        with self._lock:
            self._idle += 1
            self._dispatch.close_aside()

    def end(self) -> None:
        """No further one will be held."""
        with self._lock:
            self._is_over = True
            for _ in self.couriers:
                self._cases.put(None)


class Coroner(Courier):
    """Holds inquests that others have given away."""

    def __init__(self, line: Line, equipment: Equipment, hearings: Hearings) -> None:
        super().__init__(line, equipment)
        self._hearings = hearings

    def _work(self) -> None:
        while (case := self._hearings.next()) and self._carry(*case):
            self._hearings.close()

    def _more(self) -> list[Waiting]:
        return []  # the others go on
