"""The state of a pipeline: where it is kept, and what it says."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.coordinator import PipelineState
from penstock.errors import SourceOwned
from penstock.finding import Finding, failed, ok, warning
from penstock.owner import described
from penstock.ownership import another
from penstock.pipeline import Pipeline


def state(pipeline: Pipeline) -> Iterator[Finding]:
    """Whether the state can be used, and agrees with the source."""
    known = pipeline.state.pipeline_state(pipeline.name)
    pipeline.state.examine()
    if stranger := another(pipeline):
        yield failed("state", f"{described(stranger)}, and not for {pipeline.state.address}", SourceOwned.remedy)
        return
    lanes, retention = pipeline.source.lanes(), pipeline.source.retention
    registered = any(retention.registered(pipeline.name, lane) is not None for lane in lanes) if retention else False
    yield judged_state(pipeline.state.address, known, is_registered=registered)


def judged_state(path: str, known: PipelineState, *, is_registered: bool) -> Finding:
    """Whether both sides know of the pipeline."""
    if known.watermarks:
        return ok("state", path)
    if is_registered:
        remedy = "point `state` at the store that it used, or say where to go on: penstock run FILE --from ..."
        return failed("state", f"the database knows this pipeline and {path} does not: its progress is lost", remedy)
    return ok("state", f"{path}: a new pipeline")


def leader(pipeline: Pipeline) -> Iterator[Finding]:
    """Who carries it, what it stopped with, and what it could not deliver."""
    known = pipeline.state.pipeline_state(pipeline.name)
    yield judged_leader(known)
    if known.dead:
        why = f"{known.dead} changes could not be delivered and are parked, {known.waiting} of them behind another of their key"
        yield warning(
            "dead letters", why, "look at them: penstock dead list FILE; mend the cause, then: penstock dead redrive FILE all"
        )


def judged_leader(known: PipelineState) -> Finding:
    """What follows from the standing."""
    if known.error:
        return failed("leader", f"halted by {known.error['code']}: {known.error['message']}", known.error.get("remedy", ""))
    beside = f", {known.standbys} standing by" if known.standbys else ""
    if known.is_held:
        return ok("leader", f"{known.holder} leads, epoch {known.epoch}{beside}")
    if known.epoch:
        return warning("leader", f"nobody runs it{beside}; the last term was {known.epoch}", "penstock run FILE")
    return ok("leader", "it was never run")
