"""The contract of a sink. Implementations are in `sinks/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Watermark
from penstock.event import DeliveryRetried, Event
from penstock.poison.policy import HALTING, Poison
from penstock.retry import Retry
from penstock.source import RowLease, Source


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a delivery: one lane of one pipeline, under one term, by one task attempt.

    `poison` decides about a change that the destination never accepts. `is_redrive`: an operator sends dead letters again.
    `has_messages`: the source gives messages (penstock.message), not rows.
    `is_current`: whether the claim was confirmed within the length of a term; otherwise nothing may be sent until it is.
    `row_lease`: the leased rows of a source that settles changes one by one, for a single pipeline.
    """

    pipeline: str
    lane: Lane
    epoch: int
    attempt: int
    incarnation: str
    previous: int | None
    emit: Callable[[Event], None]
    poison: Poison = HALTING
    is_redrive: bool = False
    has_messages: bool = False
    row_lease: RowLease | None = None
    is_current: Callable[[], bool] = lambda: True

    def retried(self, reason: str, tries: int, wait: float) -> None:
        """Report a failed try, and the seconds until the next one."""
        self.emit(DeliveryRetried(pipeline=self.pipeline, reason=reason, tries=tries, wait_seconds=round(wait, 3)))


class Delivery(Protocol):
    """A sink at work on one lane.

    - Changes are offered in order, and first deliveries happen in that order per key.
    - `delivered` moves forward only, over changes that are durable at the destination, without a gap.
    - A failure that remains after the retries of the sink is raised by the next `offer` or `drain`, and by every later one;
      `delivered` still returns.
    - A change that `assignment.poison` condemned without raising, or sifted out just before it was sent, counts as durable.
    - Nothing is delivered after `close` has returned; pending changes are dropped.
    """

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take all changes, or return False without room within `wait` seconds. An empty batch only raises a failure."""

    def delivered(self) -> Change | None:
        """The last change that is durable at the destination."""

    def drain(self, wait: float) -> bool:
        """Wait at most `wait` seconds until all taken changes are durable; whether they are."""

    def close(self) -> None:
        """Finish the requests under way, and stop."""


class Sink(Protocol):
    """Frozen settings of a destination. A subclass declares only its differences from this class."""

    @property
    def retry(self) -> Retry | None:
        """The retry policy; None if the sink retries a change without end."""
        return None

    @property
    def warnings(self) -> Sequence[str]:
        """Descriptions of settings that are legal but probably a mistake; each begins with its key."""
        return ()

    def conflicts(self, source: Source, *, has_function: bool) -> Mapping[tuple[str, ...], str]:
        """The complaints about a pipeline from a source to this sink, by key of the pipeline file."""
        return {}

    @property
    def keeps_watermark(self) -> bool:
        """Whether the destination commits the watermark of a lane in one step with the changes: see TransactionalSink."""
        return False

    def open(self, assignment: Assignment) -> Delivery:
        """Start a delivery."""

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Remove the data of these lanes at the destination, and end every delivery on them, before they are placed elsewhere."""
        return


class TransactionalSink(Sink, ABC):
    """A sink that can store the watermark of a lane, so that no change is delivered twice; it does if `keeps_watermark`.

    - `open` takes the lane over: no change of an earlier delivery becomes durable afterwards, and `kept` of the new one includes
      all durable changes.
    - Its deliveries receive the marks, and their changes become durable only up to a mark, together with the mark.
    """

    @property
    def keeps_watermark(self) -> bool:
        """True, unless the settings disable it."""
        return True

    @abstractmethod
    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """The stored watermark of a lane, without transactions under way; None without one."""


class TransactionalDelivery(Delivery, Protocol):
    """A delivery of a TransactionalSink. It is drained once all changes up to the last mark are durable."""

    @property
    def kept(self) -> Watermark | None:
        """The watermark of the lane when this delivery took it over."""

    def mark(self, watermark: Watermark) -> None:
        """A mark after all changes offered so far."""
