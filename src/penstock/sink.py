"""What a sink must do. Implementations are in `sinks/`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Watermark
from penstock.event import Event
from penstock.poison import HALTING, Poison
from penstock.source import Custody


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a delivery is for: one lane of one pipeline, under one term, by one task attempt.

    `poison` says what becomes of a change that the far side will never take. `is_redrive`: a person sends dead letters again.
    `has_messages`: the source gives messages (penstock.message) and not rows.
    `is_current`: whether the claim was confirmed within the length of a term; if not, nothing may be sent until it is.
    `custody` is there where the source is this pipeline's own, and settles changes one by one.
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
    custody: Custody | None = None
    is_current: Callable[[], bool] = lambda: True


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
    """Frozen settings of a far side. One with a field `retry` (penstock.retry) decides there what becomes of poison."""

    def open(self, assignment: Assignment) -> Delivery:
        """Start delivering."""


@runtime_checkable
class Keeper(Protocol):
    """A sink that keeps the watermark of a lane itself, in one step with what it delivers, so that nothing is delivered twice.

    - `open` takes the lane from whoever had it: nothing of theirs becomes durable afterwards, and `kept` of what it opens tells
      all that did.
    - Its deliveries are told of marks, and what they have taken becomes durable only up to a mark, with the mark.
    """

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """How far this lane has been delivered, if it is kept; without what may just be under way."""

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Keep nothing for these lanes any more, and let nobody go on who has them."""


@runtime_checkable
class KeepingDelivery(Delivery, Protocol):
    """A delivery of such a sink. It is drained once everything up to the last mark is durable."""

    @property
    def kept(self) -> Watermark | None:
        """How far the lane had been delivered when this delivery took it."""

    def mark(self, watermark: Watermark) -> None:
        """Everything offered so far is what lies up to here."""
