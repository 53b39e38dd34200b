"""What a sink must do. Implementations are in `sinks/`."""

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
    """What a delivery is for: one lane of one pipeline, under one term, by one task attempt.

    `poison` says what becomes of a change that the far side will never take. `is_redrive`: a person sends dead letters again.
    `has_messages`: the source gives messages (penstock.message) and not rows.
    `is_current`: whether the claim was confirmed within the length of a term; if not, nothing may be sent until it is.
    `row_lease` is there where this pipeline has the source for itself, and settles changes one by one.
    """

    pipeline: str
    lane: Lane
    epoch: int
    attempt: int
    incarnation: str
    previous: int | None
    tell: Callable[[Event], None]
    poison: Poison = HALTING
    is_redrive: bool = False
    has_messages: bool = False
    row_lease: RowLease | None = None
    is_current: Callable[[], bool] = lambda: True

    def retried(self, reason: str, tries: int, wait: float) -> None:
        """Report that the same is sent again after so many failed tries and seconds."""
        self.tell(DeliveryRetried(pipeline=self.pipeline, reason=reason, tries=tries, wait_seconds=round(wait, 3)))


class Delivery(Protocol):
    """A sink at work on one lane.

    - Changes are offered in order, and first deliveries happen in that order per key.
    - `delivered` moves forward only, over changes that are durable at the far side, without a gap.
    - A failure that the sink's own retries could not mend is raised by the next `offer` or `drain`, and by every later one;
      `delivered` still answers.
    - What `assignment.poison` has condemned without raising, or has sifted out right before it was to be sent, counts as durable.
    - Nothing is delivered after `close` has returned; what was still pending then is dropped.
    """

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take all of these changes, or none: False if there is no room within so many seconds. None at all: raise a failure."""

    def delivered(self) -> Change | None:
        """The last change that is durable at the far side."""

    def drain(self, wait: float) -> bool:
        """Wait at most so many seconds until everything taken is durable; True if it is."""

    def close(self) -> None:
        """Finish the requests under way, if any, and stop."""


class Sink(Protocol):
    """Frozen settings of a destination. A class that inherits from this declares only what differs from it."""

    @property
    def retry(self) -> Retry | None:
        """How deliveries are repeated, and what becomes of poison; None: the sink never gives up on a change."""
        return None

    @property
    def warnings(self) -> Sequence[str]:
        """Settings that are legal but probably a mistake, each described in a text that begins with its key."""
        return ()

    def conflicts(self, source: Source, *, has_function: bool) -> Mapping[tuple[str, ...], str]:
        """The complaints about a pipeline from this source to this sink, by key of the pipeline file."""
        return {}

    @property
    def keeps_watermark(self) -> bool:
        """Whether the destination commits the watermark of a lane in one step with the changes: see TransactionalSink."""
        return False

    def open(self, assignment: Assignment) -> Delivery:
        """Start delivering."""

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Remove what the destination stores of these lanes, and end every delivery on them: they are placed elsewhere."""
        return


class TransactionalSink(Sink, ABC):
    """A sink that can keep the watermark of a lane itself, so that nothing is delivered twice; `keeps_watermark` says if it does.

    - `open` takes the lane over: nothing of an earlier delivery becomes durable afterwards, and `kept` of the new one includes
      all that did.
    - Its deliveries are given the marks, and what they have taken becomes durable only up to a mark, with the mark.
    """

    @property
    def keeps_watermark(self) -> bool:
        """It does, unless its settings say otherwise."""
        return True

    @abstractmethod
    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """How far this lane has been delivered, if it is kept; without what may just be under way."""


class TransactionalDelivery(Delivery, Protocol):
    """A delivery of such a sink. It is drained once everything up to the last mark is durable."""

    @property
    def kept(self) -> Watermark | None:
        """How far the lane had been delivered when this delivery took it."""

    def mark(self, watermark: Watermark) -> None:
        """Everything offered so far is what lies up to here."""
