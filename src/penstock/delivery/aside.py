"""Bisections set aside: each has a sender and a connection of its own, while the other senders continue."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock

from penstock.delivery.bisection import Bisection
from penstock.delivery.schedule import Waiting
from penstock.delivery.sender import Equipment, Sender
from penstock.delivery.settlement import Failure
from penstock.delivery.transport import Transport


class Aside:
    """Gives each bisection to an idle sender, or to a new one."""

    def __init__(self, connect: Callable[[], Transport], equipment: Equipment) -> None:
        self.senders: list[Sender] = []
        self._connect, self._equipment, self._queue = connect, equipment, equipment.queue
        self._cases: SimpleQueue[tuple[Bisection, Failure] | None] = SimpleQueue()
        self._lock, self._idle, self._is_over = Lock(), 0, False

    def take_over(self, bisection: Bisection, failure: Failure) -> bool:
        """Whether another sender continues this bisection: its changes then delay only those that share a row with them."""
        with self._lock:
            if self._is_over or not self._queue.set_aside([one for part in bisection.parts for one in part.changes]):
                return False
            if self._idle:
                self._idle -= 1
            else:
                self.senders.append(Bisector(self._connect(), self._equipment, self))
                self.senders[-1].start()
            self._cases.put((bisection, failure))
            return True

    def next(self) -> tuple[Bisection, Failure] | None:
        """Wait for a bisection, with the failure that began it; None at the end."""
        return self._cases.get()

    def close(self) -> None:
        """One sender has completed its bisection."""
        with self._lock:
            self._idle += 1
            self._queue.close_aside()

    def end(self) -> None:
        """No further bisection begins."""
        with self._lock:
            self._is_over = True
            for _ in self.senders:
                self._cases.put(None)


class Bisector(Sender):
    """Continues the bisections of other senders."""

    def __init__(self, transport: Transport, equipment: Equipment, aside: Aside) -> None:
        super().__init__(transport, equipment)
        self._aside = aside

    def _work(self) -> None:
        while (case := self._aside.next()) and self._carry(*case):
            self._aside.close()

    def _more(self) -> list[Waiting]:
        return []  # other senders send them
