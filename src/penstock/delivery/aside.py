"""Bisections set aside: each has a sender and a connection of its own, while the other senders continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock

from penstock.delivery.bisection import Bisection
from penstock.delivery.sender import Case, Equipment, Sender
from penstock.delivery.settlement import Failure
from penstock.delivery.transport import Transport


class Aside:
    """Gives each bisection to an idle sender, or to a new one."""

    def __init__(self, connect: Callable[[], Transport], equipment: Equipment) -> None:
        self.senders: list[Sender] = []
        self._connect, self._equipment, self._queue = connect, equipment, equipment.queue
        self._given: SimpleQueue[Case | None] = SimpleQueue()
        self._lock, self._idle, self._is_over = Lock(), 0, False

    def take_over(self, bisection: Bisection, failure: Failure) -> bool:
        """Whether another sender continues this bisection: its changes then delay only those that share a row with them."""
        with self._lock:
            if self._is_over or not self._queue.set_aside([one for part in bisection.parts for one in part.changes]):
                return False
            if self._idle:
                self._idle -= 1
            else:
                self.senders.append(Sender(self._connect(), self._equipment, self._cases()))
                self.senders[-1].start()
            bisection.is_aside = True
            self._given.put((bisection, failure))
            return True

    def _cases(self) -> Iterator[Case]:
        """The bisections of one sender, which asks for the next one when it has completed one."""
        while case := self._given.get():
            yield case
            with self._lock:
                self._idle += 1
                self._queue.close_aside()

    def end(self) -> None:
        """No further bisection begins."""
        with self._lock:
            self._is_over = True
            for _ in self.senders:
                self._given.put(None)
