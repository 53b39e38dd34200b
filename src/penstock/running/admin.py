"""Changes to a stopped pipeline by an operator: rewind and forget."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.change import Lane
from penstock.config.unread import require
from penstock.coordinator import Term
from penstock.cursor import Watermark
from penstock.errors import CaptureMissing, ConfigInvalid, PenstockError, TermHeld
from penstock.owner import Owner
from penstock.ownership import another, owner_of
from penstock.ownership import require as require_registration
from penstock.pipeline import Pipeline
from penstock.progress.watermark import release
from penstock.source import Reader, ranges_at, since
from penstock.text import duration


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a watermark, the number of `changes` between, None if unknown, and the time of the first after the new one."""

    lane: Lane
    old: Watermark
    new: Watermark
    changes: int | None
    first_at: datetime | None

    @property
    def is_skip(self) -> bool:
        """Whether it moves forward, so that undelivered changes are skipped."""
        return self.new.position > self.old.position


def target(text: str, now: datetime) -> str | datetime:
    """`beginning`, `now` and positions unchanged; a time, or a duration before now, as a time."""
    if text in ("beginning", "now") or text.isdecimal():
        return text
    try:
        return now - duration.parse(text)
    except ValueError:
        pass  # it may be a time
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write a position, a time such as 2026-01-31T12:00:00Z, a duration before now such as 2h, beginning or now"
        raise ConfigInvalid(f"{text!r} is not a place in a log", remedy) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def plan(pipeline: Pipeline, to: str, now: datetime) -> list[Move]:
    """The moves of all lanes. Raises TermHeld, ConfigInvalid, and the error of the source for a place that it does not have."""
    require(pipeline.sink)
    standing = pipeline.state.pipeline_state(pipeline.name)
    lanes, place = pipeline.source.lanes(), target(to, now)
    if standing.is_held:
        raise TermHeld(f"{standing.holder} leads {pipeline.name}")
    if not set(lanes) <= set(standing.watermarks):
        raise ConfigInvalid(f"{pipeline.name} has no watermark yet", "the first run starts at `source.start`")
    if any(ranges_at(pipeline.source, mark.cursor) for lane, mark in standing.watermarks.items() if lane in lanes):
        raise ConfigInvalid(f"{pipeline.name} has an unfinished snapshot", "run it to the end, or: penstock forget FILE")
    return [_move(pipeline, lane, standing.watermarks[lane], place) for lane in lanes]


def _move(pipeline: Pipeline, lane: Lane, old: Watermark, place: str | datetime) -> Move:
    source = pipeline.source
    cursor = since(source, lane, place) if isinstance(place, datetime) else source.begin(lane, place)
    position = source.position(cursor)
    new = Watermark(cursor, position, old.delivered if position >= old.position else None)  # backward, it is unknown
    before, after = source.backlog(lane, old.cursor), source.backlog(lane, cursor)
    between = None if before.changes is None or after.changes is None else abs(after.changes - before.changes)
    return Move(lane, old, new, between, after.oldest_at)


def rewind(pipeline: Pipeline, moves: Sequence[Move]) -> None:
    """Move watermarks as planned. Raises TermHeld, and ConfigInvalid if a watermark has moved since."""
    with _leading(pipeline) as term:
        owner = owner_of(pipeline)
        require_registration(pipeline, owner)
        for move in moves:
            if pipeline.state.watermark(pipeline.name, move.lane) != move.old:
                raise ConfigInvalid(f"{pipeline.name} is no longer at position {move.old.position}", "repeat the command")
        _register(pipeline, [move for move in moves if not move.is_skip], owner)  # first, so that nothing is pruned there
        release(pipeline, [move.lane for move in moves])
        pipeline.state.place(term, {move.lane: move.new for move in moves})
        _register(pipeline, [move for move in moves if move.is_skip], owner)


def _register(pipeline: Pipeline, moves: Sequence[Move], owner: Owner) -> None:
    if retention := pipeline.source.retention:
        for move in moves:
            retention.register(pipeline.name, move.lane, move.new.cursor, owner)


def registration(pipeline: Pipeline) -> int | None:
    """The lowest registered position of a pipeline; None also without a capture."""
    retention = pipeline.source.retention
    with suppress(CaptureMissing):
        noted = [retention.registered(pipeline.name, lane) for lane in pipeline.source.lanes()] if retention else []
        return min((position for position in noted if position is not None), default=None)
    return None


def forget(pipeline: Pipeline) -> None:
    """Remove the watermarks and the registration of a pipeline, whose epochs continue. Raises TermHeld.

    A registration of another state is handed over, at its position, to the state of the pipeline. Then watermarks and letters
    stay: the state may be a backup.
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
    with suppress(CaptureMissing):  # nothing is registered without a capture
        if pipeline.source.retention:
            pipeline.source.retention.forget(pipeline.name, owner)


def stranger(pipeline: Pipeline) -> Reader | None:
    """The registration of this name, if it belongs to another state; None also without a capture."""
    with suppress(CaptureMissing):
        return another(pipeline)
    return None


@contextmanager
def _leading(pipeline: Pipeline) -> Iterator[Term]:
    """A term for the block; the recorded error of the pipeline is cleared only if the block succeeds."""
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
