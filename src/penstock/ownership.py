"""A pipeline's own state as the owner of its registration in the source."""

from __future__ import annotations

import os
import socket

from penstock.errors import PenstockError, SourceOwned, StateUnavailable
from penstock.owner import Owner, is_anothers, refuse_another
from penstock.pipeline import Pipeline
from penstock.source import Reader, readers_of

_NEW = "not made yet"
"""Stands for the identity of a state that was not opened yet."""


def owner_of(pipeline: Pipeline) -> Owner:
    """The state of this pipeline. Raises StateUnavailable before there is one."""
    identity = pipeline.state.identity()
    if identity is None:
        raise StateUnavailable(f"there is no state in {pipeline.state.address}", "see that it was not removed")
    return Owner(identity, pipeline.state.address, f"{socket.gethostname()}:{os.getpid()}")


def require(pipeline: Pipeline, owner: Owner) -> None:
    """Raise SourceOwned if the source has this name registered for another state."""
    for one in readers_of(pipeline.source):
        if one.pipeline == pipeline.name:
            refuse_another(one, owner)


def another(pipeline: Pipeline) -> Reader | None:
    """The registration of this name, if it belongs to another state than that of the pipeline; nothing is changed."""
    own = Owner(pipeline.state.identity() or _NEW)
    return next((one for one in readers_of(pipeline.source) if one.pipeline == pipeline.name and is_anothers(one, own)), None)


def refusal(pipeline: Pipeline) -> SourceOwned | None:
    """The error of a pipeline whose registration belongs to another state; None also where that cannot be seen now.

    Brokers that have just started may not know yet that there is a state: without an identity nothing is certain.
    """
    try:
        if identity := pipeline.state.identity():
            require(pipeline, Owner(identity, pipeline.state.address))
    except SourceOwned as error:
        return error
    except PenstockError:
        return None
    return None
