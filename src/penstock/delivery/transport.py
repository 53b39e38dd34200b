"""The contract of a destination: one attempt at a time, without retries. The driver decides everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.change import Place
from penstock.delivery.schedule import Waiting


@dataclass(frozen=True, slots=True)
class Accepted:
    """The changes are durable at the destination, except those at the places `named`, for this `reason`.

    `after`: the seconds that the destination asks to wait; they count if it names all changes, which is a refusal.
    """

    reason: str = ""
    named: frozenset[Place] = frozenset()
    after: float | None = None


ACCEPTED = Accepted()  # no change is named: the usual case


@dataclass(frozen=True, slots=True)
class Refused:
    """No change is accepted for certain, and one of them may be the reason: after all tries the driver searches for it.

    `named`: the places of the changes at fault. `is_final`: no repetition can help. `is_too_large`: a request with fewer bytes may
    be accepted. `is_certain`: nothing of the request is at the destination. `after`: the seconds that the destination asks to wait.
    """

    reason: str
    named: frozenset[Place] = frozenset()
    is_final: bool = False
    is_too_large: bool = False
    is_certain: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """No change is accepted for certain, for a reason outside of them: the same request is sent again.

    `is_free`: at once, and without counting a failed try.
    """

    reason: str
    after: float | None = None
    is_certain: bool = False
    is_free: bool = False


Failed = Refused | Deferred
Outcome = Accepted | Failed


class Attempt(NamedTuple):
    """The number of an attempt at the same changes, from 1.

    A transport may call `under_way` after it has sent the request and before it waits for the outcome: the driver works meanwhile.
    Otherwise the driver does the same work after `send`.
    """

    number: int
    under_way: Callable[[], None]


class Transport(Protocol):
    """One connection to a destination, which one thread uses."""

    def send(self, changes: Sequence[Waiting], attempt: Attempt) -> Outcome:
        """Send these changes, in this order, and wait for the outcome. An exception ends the delivery.

        It must return after a limited time: `Delivery.close` waits for it. A transport uses `text`, `at`, `place` and `bytes` only.
        """

    def sever_if_late(self) -> None:
        """End an attempt that has lasted too long; the caller's thread calls this within its own calls of the delivery only."""
        return

    def close(self) -> None:
        """Close the connection."""
        return


class Destination(Protocol):
    """Makes the connections of one delivery. `shown` is its name in errors and events."""

    shown: str

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The text of each change, None for one that is not sent; `previous` is the position before the first one.

        A text depends on nothing else, so that every attempt has the same.
        """

    def connect(self) -> Transport:
        """One more connection, which may open when it is needed. Threads of senders call this, too, for bisections."""
