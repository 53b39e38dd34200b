"""Bugs, one for each defence, in the driver and in Spark's workers alike; a file of a bug's name switches it on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

import alteration

_FOLDER = os.environ["PENSTOCK_TEST_BUGS"]


def is_on(bug: str) -> bool:
    """Whether this bug is switched on now."""
    return os.path.exists(os.path.join(_FOLDER, bug))


def instead(owner: Any, name: str, bug: str, faulty: Callable[..., Any]) -> None:
    """Let a call go wrong while the bug is on; the faulty one gets the sound one first."""
    sound = getattr(owner, name)

    def either(*values: Any, **named: Any) -> Any:
        return faulty(sound, *values, **named) if is_on(bug) else sound(*values, **named)

    setattr(owner, name, either)


def delivery(module: ModuleType) -> None:
    """What was handed to the sink counts as delivered."""
    from penstock.change import from_batch

    offer = module.Driver.offer

    def remembering(self: Any, changes: Any, wait: float) -> bool:
        is_taken = offer(self, changes, wait)
        if is_taken and changes.num_rows:
            self.last_taken = changes.slice(changes.num_rows - 1)
        return is_taken

    def taken(sound: Any, self: Any) -> Any:
        return next(from_batch(self.last_taken)) if hasattr(self, "last_taken") else sound(self)

    module.Driver.offer = remembering
    instead(module.Driver, "delivered", "watermark-before-post", taken)


def progress(module: ModuleType) -> None:
    """A mark counts before what came before it is durable."""
    instead(module, "_covers", "marks-counted-early", lambda sound, reached, needed: True)


def claim(module: ModuleType) -> None:
    """A lane is taken without its lock; progress is recorded without a look at the term."""
    from penstock.coordinators import row_claim

    def unlocked(sound: Any, store: Any, term: Any, lane: Any, attempt: int) -> Any:
        return module.locks.seize(module.folder(store.path) / f"unlocked.{attempt}.{os.getpid()}")

    def unfenced(sound: Any, self: Any, watermark: Any, tally: Any) -> None:
        sql = row_claim._ADVANCE.replace(row_claim._CURRENT, row_claim.LANE).format(schema="", now=self._store.now, more="")
        rate = {"changes": tally.delivered, "rate": tally.rate, "trouble": None}
        self._store.write(sql, **asdict(watermark), **rate, **self._mine)

    instead(module, "_wait_for_lane", "lane-without-lock", unlocked)
    instead(module.SqliteClaim, "advance", "term-not-checked", unfenced)


def writer(module: ModuleType) -> None:
    """Four bugs of the delivering half."""
    from penstock.coordinator import Tally
    from penstock.cursor import Watermark

    def misnamed(sound: Any, *values: Any) -> Any:
        assignment = sound(*values)
        if assignment.pipeline == "far":  # its receiver refuses a gap for ever, and an epoch of it may begin while a test waits
            return assignment
        return replace(assignment, previous=(assignment.previous or 0) + 1)

    def ended(sound: Any, self: Any) -> None:
        if marks := self._progress._marks:
            handed, position, cursor = marks[-1]
            self._claim.advance(Watermark(cursor, position, handed and handed[0]), Tally())

    def partial(sound: Any, self: Any) -> Any:
        change = self._delivery.delivered()
        if change is None or change.ordinal is None:
            return sound(self)
        return self._progress.durable(change.replace(ordinal=None), self._behind(change))

    instead(module.LaneWriter, "_assigned", "previous-wrong", misnamed)
    instead(module.LaneWriter, "_drain", "end-of-input-is-success", ended)
    instead(module.LaneWriter, "_above_floor", "floor-ignored", lambda sound, self, run: run)
    instead(module.LaneWriter, "_durable", "part-of-a-position-counts", partial)


def reader(module: ModuleType) -> None:
    """A new attempt begins at the head of the log instead of the watermark."""

    def at_head(sound: Any, self: Any) -> Any:
        head = self._source.head(self._lane)
        return replace(sound(self), cursor=head, position=self._source.position(head))

    instead(module.Reading, "_watermark", "begins-at-the-head", at_head)


def answer(module: ModuleType) -> None:
    """Any answer counts as taken, so a refused batch is passed over."""
    from penstock.delivery.transport import ACCEPTED

    instead(module, "outcome", "refused-batch-skipped", lambda sound, *values: ACCEPTED)


def schedule(module: ModuleType) -> None:
    """Changes of one row go side by side."""
    instead(module.Schedule, "_are_free", "rows-not-kept-apart", lambda sound, self, rows: True)


def text(module: ModuleType) -> None:
    """The bytes of a change tell when they were made."""

    def stamped(sound: Any, *values: Any) -> list[str]:
        return [f'{one[:-1]},"sent":{time.time_ns()}}}' for one in sound(*values)]

    instead(module.PenstockFormat, "texts", "bytes-differ", stamped)


def request(module: ModuleType) -> None:
    """A successor goes on under its predecessor's number."""

    def old(sound: Any, *values: Any) -> dict[str, str]:
        with open(os.path.join(_FOLDER, "epoch-of-the-predecessor")) as number:
            return {**sound(*values), "Penstock-Epoch": number.read()}

    instead(module, "_headers", "epoch-of-the-predecessor", old)


def settling(module: ModuleType) -> None:
    """The source may forget what was not delivered; a file counts how often it was settled."""

    def hasty(sound: Any, self: Any) -> int:
        from penstock.ownership import owner_of

        source, name, owner = self._pipeline.source, self._pipeline.name, owner_of(self._pipeline)
        return sum(source.retention.settle(name, lane, source.head(lane), owner).pruned for lane in source.lanes())

    instead(module.Settling, "settle", "settled-before-delivery", hasty)
    settle = module.Settling.settle

    def counted(self: Any) -> int:
        pruned: int = settle(self)
        with open(os.path.join(_FOLDER, f"settled.{self._pipeline.name}"), "a") as times:
            times.write("+")
        return pruned

    module.Settling.settle = counted  # type: ignore[attr-defined]


PLANTS: dict[str, alteration.Alter] = {
    "penstock.delivery.driver": delivery,
    "penstock.spark.progress": progress,
    "penstock.coordinators.sqlite.claim": claim,
    "penstock.spark.writer": writer,
    "penstock.spark.reader": reader,
    "penstock.sinks.webhook.answer": answer,
    "penstock.delivery.schedule": schedule,
    "penstock.formats.penstock": text,
    "penstock.sinks.webhook.request": request,
    "penstock.running.settling": settling,
}


alteration.of(PLANTS)
