"""The contract of a destination: one attempt at a time, without retries of its own. The driver decides all the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.delivery.schedule import Waiting
from penstock.poison.parked_keys import Place


@dataclass(frozen=True, slots=True)
class Accepted:
    """The changes are durable at the destination, except those at the places `named`, for this `reason`.

    `after`: the seconds that the destination asks to wait; they count where it names all changes, which is a refusal.
    """

    reason: str = ""
    named: frozenset[Place] = frozenset()
    after: float | None = None


ACCEPTED = Accepted()
"""Nothing is named, as is nearly always so."""


@dataclass(frozen=True, slots=True)
class Refused:
    """None of the changes counts as accepted, and one of them may be the reason: after all tries it is looked for.

    `named`: the places of those that the destination says it is about. `is_final`: no repetition can help. `is_too_large`: a
    request with fewer bytes may be accepted. `is_certain`: nothing of the request is at the destination. `after`: the seconds
    that the destination asks to wait.
    """

    reason: str
    named: frozenset[Place] = frozenset()
    is_final: bool = False
    is_too_large: bool = False
    is_certain: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """None of the changes counts as accepted, for a reason outside of them: the same request is sent again.

    `is_free`: at once, and the attempt is no failed one.
    """

    reason: str
    after: float | None = None
    is_certain: bool = False
    is_free: bool = False


Failed = Refused | Deferred
Outcome = Accepted | Failed


class Attempt(NamedTuple):
    """The number of an attempt at the same changes, from 1.

    A transport may call `under_way` when the request is sent and its outcome is not known: the driver works meanwhile. If it does
    not, the driver does the same work after `send`.
    """

    number: int
    under_way: Callable[[], None]


class Transport(Protocol):
    """One connection to a destination, which one thread uses."""

    def send(self, changes: Sequence[Waiting], attempt: Attempt) -> Outcome:
        """Send these changes, in this order, and wait for the outcome. What it raises ends the delivery.

        It must return after a limited time: `Delivery.close` waits for it. Of a change `text`, `at`, `place` and `bytes` are meant
        for a transport.
        """

    def sever_if_late(self) -> None:
        """End an attempt that has lasted too long; the caller's thread calls this within its own calls of the delivery only."""
        return

    def close(self) -> None:
        """Give the connection up."""
        return


class Destination(Protocol):
    """Makes the connections of one delivery. `shown` is its name in errors and events."""

    shown: str

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """Each change as it is sent, None for one that is not; `previous` is the position before the first one.

        A text depends on nothing else, so that every attempt has the same.
        """

    def connect(self) -> Transport:
        """One more connection; it may be opened when it is needed. The thread of a sender calls this, too, for a bisection."""
