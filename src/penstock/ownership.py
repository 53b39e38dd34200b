"""The state of a pipeline as the owner of its registration in the source."""

from __future__ import annotations

import os
import socket

from penstock.errors import PenstockError, SourceOwned, StateUnavailable
from penstock.owner import Owner, is_anothers, refuse_another
from penstock.pipeline import Pipeline
from penstock.source import Reader, readers_of

_NEW = "not made yet"
"""The identity of a state that does not exist yet."""


def owner_of(pipeline: Pipeline) -> Owner:
    """The state of this pipeline. Raises StateUnavailable before it exists."""
    identity = pipeline.state.identity()
    if identity is None:
        raise StateUnavailable(f"there is no state in {pipeline.state.address}", "check that it was not removed")
    return Owner(identity, pipeline.state.address, f"{socket.gethostname()}:{os.getpid()}")


def require(pipeline: Pipeline, owner: Owner) -> None:
    """Raise SourceOwned if the source has this name registered for another state."""
    for one in readers_of(pipeline.source):
        if one.pipeline == pipeline.name:
            refuse_another(one, owner)


def another(pipeline: Pipeline) -> Reader | None:
    """The registration of this name, if it belongs to a state other than that of the pipeline; changes nothing."""
    own = Owner(pipeline.state.identity() or _NEW)
    return next((one for one in readers_of(pipeline.source) if one.pipeline == pipeline.name and is_anothers(one, own)), None)


def refusal(pipeline: Pipeline) -> SourceOwned | None:
    """The error of a pipeline whose registration belongs to another state; None also if the source cannot be read.

    None without an identity, too: brokers may not have the state yet, just after their start.
    """
    try:
        if identity := pipeline.state.identity():
            require(pipeline, Owner(identity, pipeline.state.address))
    except SourceOwned as error:
        return error
    except PenstockError:
        return None
    return None
