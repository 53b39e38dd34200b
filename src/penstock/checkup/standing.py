"""The checks of the state of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.coordinator import PipelineState
from penstock.errors import SourceOwned
from penstock.finding import Finding, failed, ok, warning
from penstock.owner import described
from penstock.ownership import another
from penstock.pipeline import Pipeline
from penstock.running.admin import registration


def state(pipeline: Pipeline) -> Iterator[Finding]:
    """Whether the state is usable and agrees with the source."""
    known = pipeline.state.pipeline_state(pipeline.name)
    pipeline.state.examine()
    if stranger := another(pipeline):
        yield failed("state", f"{described(stranger)}, and not for {pipeline.state.address}", SourceOwned.remedy)
        return
    yield judged_state(pipeline.state.address, known, is_registered=registration(pipeline) is not None)


def judged_state(path: str, known: PipelineState, *, is_registered: bool) -> Finding:
    """Whether the state has the watermark of a registered pipeline."""
    if known.watermarks:
        return ok("state", path)
    if is_registered:
        remedy = "set `state` to the store that it used, or choose where to continue: penstock run FILE --from ..."
        return failed("state", f"the pipeline is registered, but {path} has no watermark: its progress is lost", remedy)
    return ok("state", f"{path}: a new pipeline")


def leader(pipeline: Pipeline) -> Iterator[Finding]:
    """The leader, the last error and the dead letters."""
    known = pipeline.state.pipeline_state(pipeline.name)
    yield judged_leader(known)
    if known.dead:
        why = f"{known.dead} changes could not be delivered and are parked, {known.waiting} to wait for another of their key"
        remedy = "list them: penstock dead list FILE; correct the cause, then: penstock dead redrive FILE all"
        yield warning("dead letters", why, remedy)


def judged_leader(known: PipelineState) -> Finding:
    """The finding for this state."""
    if known.error:
        return failed("leader", f"halted by {known.error['code']}: {known.error['message']}", known.error.get("remedy", ""))
    standbys = f", {known.standbys} standing by" if known.standbys else ""
    if known.is_held:
        return ok("leader", f"{known.holder} leads, epoch {known.epoch}{standbys}")
    if known.epoch:
        return warning("leader", f"no process runs the pipeline{standbys}; the last term was {known.epoch}", "penstock run FILE")
    return ok("leader", "the pipeline has never run")
