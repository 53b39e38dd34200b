"""Bisections beside everything else: each has a sender and a connection of its own, while the others go on."""

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
    """Each bisection that is given away goes to a sender that has none; if there is no such, one more is started."""

    def __init__(self, connect: Callable[[], Transport], equipment: Equipment) -> None:
        self.senders: list[Sender] = []
        self._connect, self._equipment, self._queue = connect, equipment, equipment.queue
        self._cases: SimpleQueue[tuple[Bisection, Failure] | None] = SimpleQueue()
        self._lock, self._idle, self._is_over = Lock(), 0, False

    def take_over(self, bisection: Bisection, failure: Failure) -> bool:
        """Whether another sender has this bisection from now on: its changes hold up only what shares a row with them."""
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
        """Wait for a bisection, with the failure that it began with; None at the end."""
        return self._cases.get()

    def close(self) -> None:
        """The bisection of one sender is over."""
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
    """Goes on with bisections that other senders have given away."""

    def __init__(self, transport: Transport, equipment: Equipment, aside: Aside) -> None:
        super().__init__(transport, equipment)
        self._aside = aside

    def _work(self) -> None:
        while (case := self._aside.next()) and self._carry(*case):
            self._aside.close()

    def _more(self) -> list[Waiting]:
        return []  # the others go on
