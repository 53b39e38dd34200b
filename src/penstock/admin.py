"""Changes to a stopped pipeline by an operator: rewind and forget."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock import duration
from penstock.change import Lane
from penstock.coordinator import Term
from penstock.cursor import Cursor, Watermark
from penstock.errors import CaptureMissing, ConfigInvalid, PenstockError, TermHeld
from penstock.owner import Owner
from penstock.ownership import another, owner_of
from penstock.ownership import require as require_registration
from penstock.pipeline import Pipeline
from penstock.sink_watermark import release
from penstock.source import Reader, ranges_at, since
from penstock.unread import require


@dataclass(frozen=True, slots=True)
class Move:
    """A watermark's way to another place.

    `changes`: how many lie between, None if unknown. `first_at`: the time of the first after the new place.
    """

    lane: Lane
    old: Watermark
    new: Watermark
    changes: int | None
    first_at: datetime | None

    @property
    def is_skip(self) -> bool:
        """Whether it goes forward: over changes that were not delivered and never will be."""
        return self.new.position > self.old.position


def target(text: str, now: datetime) -> str | datetime:
    """The place that is meant: `beginning`, `now` or a position as they are; a time, or one so long ago, as a time."""
    if text in ("beginning", "now") or text.isdecimal():
        return text
    try:
        return now - duration.parse(text)
    except ValueError:
        pass  # perhaps a time
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        meant = "write a position, a time such as 2026-01-31T12:00:00Z, how long ago such as 2h, beginning or now"
        raise ConfigInvalid(f"{text!r} is no place in a log", meant) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def plan(pipeline: Pipeline, to: str, now: datetime) -> list[Move]:
    """How each lane would move. Raises TermHeld, ConfigInvalid, and what the source says of a place that it does not have."""
    require(pipeline.sink)
    standing = pipeline.state.pipeline_state(pipeline.name)
    lanes, place = pipeline.source.lanes(), target(to, now)
    if standing.is_held:
        raise TermHeld(f"{standing.holder} leads {pipeline.name}")
    if not set(lanes) <= set(standing.watermarks):
        raise ConfigInvalid(f"{pipeline.name} has no watermark yet", "it starts where `source.start` says when it is first run")
    if any(ranges_at(pipeline.source, mark.cursor) for lane, mark in standing.watermarks.items() if lane in lanes):
        raise ConfigInvalid(f"{pipeline.name} is in the middle of a snapshot", "let it come to its end, or: penstock forget FILE")
    return [_move(pipeline, lane, standing.watermarks[lane], place) for lane in lanes]


def _move(pipeline: Pipeline, lane: Lane, old: Watermark, place: str | datetime) -> Move:
    source = pipeline.source
    cursor = since(source, lane, place) if isinstance(place, datetime) else source.begin(lane, place)
    before, after = source.backlog(lane, old.cursor), source.backlog(lane, cursor)
    between = None if before.changes is None or after.changes is None else abs(after.changes - before.changes)
    return Move(lane, old, _moved(old, cursor, source.position(cursor)), between, after.oldest_at)


def _moved(old: Watermark, cursor: Cursor, position: int) -> Watermark:
    """Back: nobody knows any more what was sent before. Forward: that is what was sent last."""
    return Watermark(cursor, position, old.delivered if position >= old.position else None)


def rewind(pipeline: Pipeline, moves: Sequence[Move]) -> None:
    """Move watermarks as planned. Raises TermHeld, and ConfigInvalid if the pipeline has moved meanwhile."""
    with _leading(pipeline) as term:
        owner = owner_of(pipeline)
        require_registration(pipeline, owner)
        for move in moves:
            if pipeline.state.watermark(pipeline.name, move.lane) != move.old:
                raise ConfigInvalid(f"{pipeline.name} is no longer at position {move.old.position}", "look again, and decide anew")
        _register(pipeline, [move for move in moves if not move.is_skip], owner)  # first: nothing may be pruned there any more
        release(pipeline, [move.lane for move in moves])
        pipeline.state.place(term, {move.lane: move.new for move in moves})
        _register(pipeline, [move for move in moves if move.is_skip], owner)


def _register(pipeline: Pipeline, moves: Sequence[Move], owner: Owner) -> None:
    if retention := pipeline.source.retention:
        for move in moves:
            retention.register(pipeline.name, move.lane, move.new.cursor, owner)


def registration(pipeline: Pipeline) -> int | None:
    """The position that the source has noted for a pipeline; None also where there is no capture any more."""
    retention = pipeline.source.retention
    with suppress(CaptureMissing):
        noted = [retention.registered(pipeline.name, lane) for lane in pipeline.source.lanes()] if retention else []
        return min((position for position in noted if position is not None), default=None)
    return None


def forget(pipeline: Pipeline) -> None:
    """Remove a pipeline's watermarks and its registration: it will start anew. Its epochs go on. Raises TermHeld.

    A registration of another state is handed over to that of the pipeline and stays where it is; the watermarks of the pipeline
    and its letters stay, too: the state may be a backup.
    """
    require(pipeline.sink)
    standing, owner, is_anothers = pipeline.state.pipeline_state(pipeline.name), None, stranger(pipeline) is not None
    if standing.epoch or is_anothers:
        with _leading(pipeline) as term:
            if not is_anothers:
                release(pipeline, {*standing.watermarks, *pipeline.source.lanes()})
                pipeline.state.forget(term)
            owner = owner_of(pipeline)
    else:
        release(pipeline, pipeline.source.lanes())
    with suppress(CaptureMissing):  # then nothing is registered there either
        if pipeline.source.retention:
            pipeline.source.retention.forget(pipeline.name, owner)


def stranger(pipeline: Pipeline) -> Reader | None:
    """The registration of this name, if it belongs to another state; None also where there is no capture any more."""
    with suppress(CaptureMissing):
        return another(pipeline)
    return None


@contextmanager
def _leading(pipeline: Pipeline) -> Iterator[Term]:
    """A term for the length of the deed; the error that the pipeline stopped with is gone only if the deed succeeds."""
    error = pipeline.state.pipeline_state(pipeline.name).error
    candidate = pipeline.state.candidate(pipeline.name, f"{socket.gethostname()}:{os.getpid()}:decision")
    try:
        if not (term := candidate.campaign()):
            raise TermHeld(f"{pipeline.state.pipeline_state(pipeline.name).holder} leads {pipeline.name}")
        try:
            yield term
        except PenstockError:
            if error:
                pipeline.state.halt(term, error)
            raise
        finally:
            candidate.resign()
    finally:
        candidate.close()
