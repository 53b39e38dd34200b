"""How a pipeline is doing, in the words that `penstock status --json` promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal

from penstock.change import Lane
from penstock.coordinator import PipelineState
from penstock.errors import PenstockError, SourcePruned
from penstock.owner import described
from penstock.ownership import another
from penstock.pipeline import Pipeline
from penstock.source import Backlog, Reader, ranges_at, readers_of, undelivered
from penstock.text.duration import roughly
from penstock.text.printable import as_json

State = Literal["leading", "standby", "stopped", "halted"]


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a pipeline at one moment; unknown values are None.

    `error`: the error that halted it, or that prevents a reading of its status. `trouble`: the last known error that is being
    retried. `marks`: the positions of the watermarks, also those of the ranges of a snapshot.
    """

    name: str
    mode: str
    state: State
    epoch: int
    holder: str | None
    position: int | None
    head: int | None
    backlog: int | None
    lag_seconds: float | None
    oldest_undelivered: str | None
    rate: float
    delivered: int
    dead: int
    error: Mapping[str, str] | None
    trouble: Mapping[str, str] | None = None
    marks: Mapping[str, int] = field(default_factory=dict)

    @property
    def last_error(self) -> Mapping[str, str] | None:
        """The error, whether it halts the pipeline or is being retried."""
        return self.error or self.trouble

    def to_json(self) -> str:
        """The status as one line of JSON; `state` shows whether the error halted the pipeline."""
        facts = asdict(self) | {"error": self.last_error}
        del facts["trouble"], facts["marks"]
        return as_json(facts)


def observe(pipeline: Pipeline) -> Status:
    """Read the status from the state store and the source; an error of either becomes the error of the status."""
    standing = PipelineState()
    while True:
        before, standing = standing, PipelineState()
        try:
            standing = pipeline.state.pipeline_state(pipeline.name)
            waiting: Mapping[Lane, Backlog] | PenstockError = _backlogs(pipeline, standing)
        except PenstockError as error:
            if isinstance(error, SourcePruned) and standing.watermarks != before.watermarks:
                continue  # the pipeline may have settled those changes between the two reads
            waiting = error
        return summarise(pipeline, standing, waiting, datetime.now(UTC))


def summarise(
    pipeline: Pipeline, standing: PipelineState, waiting: Mapping[Lane, Backlog] | PenstockError, now: datetime
) -> Status:
    """The status from these facts: backlogs of lanes are added, and the oldest undelivered change gives the lag."""
    error, lanes = (waiting.facts(), {}) if isinstance(waiting, PenstockError) else (None, waiting)
    oldest_at = min((lane.oldest_at for lane in lanes.values() if lane.changes != 0 and lane.oldest_at), default=None)
    lag = max(0.0, (now - oldest_at).total_seconds()) if oldest_at else 0.0
    return Status(
        name=pipeline.name,
        mode=pipeline.mode,
        state=_state(standing),
        epoch=standing.epoch,
        holder=standing.holder if standing.is_held else None,
        position=position_of(pipeline, standing),
        head=max((lane.head for lane in lanes.values()), default=None),
        backlog=_total(lane.changes for lane in lanes.values()) if lanes else None,
        lag_seconds=round(lag, 3) if lanes else None,
        oldest_undelivered=oldest_at.astimezone(UTC).isoformat(timespec="milliseconds") if oldest_at else None,
        rate=round(standing.rate, 3) if standing.is_held else 0.0,
        delivered=standing.delivered,
        dead=standing.dead,
        error=standing.error or error,
        trouble=standing.trouble,
        marks={lane: mark.position for lane, mark in standing.watermarks.items()},
    )


def position_of(pipeline: Pipeline, standing: PipelineState) -> int | None:
    """The lowest position of the lanes of a pipeline; None before its first watermark, and while its lanes cannot be listed."""
    with suppress(PenstockError):
        marks, lanes = standing.watermarks, pipeline.source.lanes()
        return min((marks[lane].position for lane in lanes if lane in marks), default=None)
    return None


def _total(counts: Iterable[int | None]) -> int | None:
    known = [*counts]
    return None if None in known else sum(one or 0 for one in known)


def remarks(pipeline: Pipeline) -> list[str]:
    """Remarks on a pipeline: its snapshot, its poison, and the readers that hold the log back; none if they cannot be read."""
    with suppress(PenstockError):
        standing = pipeline.state.pipeline_state(pipeline.name)
        own = [*_snapshot(pipeline, standing), *_poison(pipeline.name, standing)]
        readers = readers_of(pipeline.source)
        remarks = pipeline.source.retention.remarks() if pipeline.source.retention else ()
        noted = _unnoted(pipeline.name, readers) if standing.is_held else ()
        return [*own, *_stranger(pipeline), *noted, *_holders(pipeline.name, readers), *remarks]
    return []


def _snapshot(pipeline: Pipeline, standing: PipelineState) -> Iterator[str]:
    source, marks = pipeline.source, standing.watermarks
    ranges = {
        name: begin for lane in source.lanes() if lane in marks for name, begin in ranges_at(source, marks[lane].cursor).items()
    }
    if ranges:
        left = len(undelivered(source, ranges, marks))
        yield f"{pipeline.name}: snapshot: {len(ranges) - left} of {len(ranges)} ranges"


def _poison(name: str, standing: PipelineState) -> Iterator[str]:
    if standing.dead:
        behind = f", {standing.waiting} of them wait for another" if standing.waiting else ""
        passed = f", passed by {standing.passed} later changes of their keys" if standing.passed else ""
        yield f"{name}: {standing.dead} dead letters{behind}{passed}: penstock dead list FILE"
    if standing.dropped:
        yield f"{name}: {standing.dropped} changes were dropped"


def _stranger(pipeline: Pipeline) -> Iterator[str]:
    if one := another(pipeline):
        yield f"{described(one)}, and not for {pipeline.state.address}: penstock forget FILE hands it over"


def _holders(name: str, readers: Sequence[Reader]) -> Iterator[str]:
    for one in readers:
        if one.is_gone and one.kept and one.pipeline != name:
            yield (
                f"{one.pipeline} holds the log back: at position {one.position}, last contact {roughly(one.silent)} ago, "
                f"{one.kept} changes kept for it; to release it: penstock forget --database DATABASE {one.pipeline}"
            )


def _unnoted(name: str, readers: Sequence[Reader]) -> Iterator[str]:
    """A leader without recent contact to its source: the stores do not show otherwise that the source is read-only."""
    for one in readers:
        if one.is_gone and one.pipeline == name:
            contact = f"its last contact to the source was {roughly(one.silent)} ago"
            yield f"{name} leads, but {contact}: check the log, and that the source is writable"


def _state(standing: PipelineState) -> State:
    if standing.error:
        return "halted"
    if standing.is_held:
        return "leading"
    return "standby" if standing.standbys else "stopped"


def _backlogs(pipeline: Pipeline, standing: PipelineState) -> Mapping[Lane, Backlog]:
    source, marks, found = pipeline.source, standing.watermarks, dict[Lane, Backlog]()
    start = "beginning" if marks else source.start  # of a new lane, and of a new pipeline
    for lane in source.lanes():
        reached = marks[lane].cursor if lane in marks else source.begin(lane, start)
        found[lane] = source.backlog(lane, reached)
        left = undelivered(source, ranges_at(source, reached), marks)
        if source.snapshot and left:
            found[Lane(f"rows of {lane}")] = source.snapshot.remaining([*left.values()])
    return found
