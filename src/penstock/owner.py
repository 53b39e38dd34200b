"""The owner of a registration in a source, and the right to alter it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import SourceOwned
from penstock.text.duration import roughly


@dataclass(frozen=True, slots=True)
class Owner:
    """A state store, identified by `identity`; its address, without secrets, and its last process are for operators."""

    identity: str
    state: str = field(default="", compare=False)
    process: str = field(default="", compare=False)


class Registered(Protocol):
    """A registration of a pipeline in a source."""

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""

    @property
    def silent(self) -> float:
        """Seconds since its last contact."""

    @property
    def is_released(self) -> bool:
        """Whether the source no longer keeps changes for it."""

    @property
    def owner(self) -> Owner | None:
        """The state to which it belongs; None after an upgrade, until the next state adopts it."""


def is_anothers(known: Registered | None, owner: Owner | None) -> bool:
    """Whether this registration belongs to another state, whatever the age of its last contact."""
    return known is not None and known.owner is not None and not known.is_released and known.owner != owner


def refuse_another(known: Registered | None, owner: Owner | None) -> None:
    """Raise SourceOwned if this registration belongs to another state."""
    if known and is_anothers(known, owner):
        mine = f"this state is {owner.state} (id {owner.identity})" if owner else "the request names no state"
        raise SourceOwned(f"{described(known)}; {mine}")


def described(known: Registered) -> str:
    """A registration and its owner, without secrets."""
    owner = known.owner or Owner("unknown")
    contact = f"last contact {roughly(known.silent)} ago" + (f" by {owner.process}" if owner.process else "")
    return f"the source has {known.pipeline} registered for the state {owner.state} (id {owner.identity}), {contact}"
