"""To which state a registration in a source belongs, and who may alter it: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from penstock.duration import roughly
from penstock.errors import SourceOwned


@dataclass(frozen=True, slots=True)
class Owner:
    """A state store: `identity` decides; its address, without secrets, and the process that was noted last are for people."""

    identity: str
    state: str = field(default="", compare=False)
    process: str = field(default="", compare=False)


class Registered(Protocol):
    """A registration: of which pipeline, when it was last noted, and whose it is."""

    @property
    def pipeline(self) -> str:
        """The name."""

    @property
    def silent(self) -> float:
        """Seconds since it was last noted."""

    @property
    def is_released(self) -> bool:
        """Whether nothing is kept for it any more."""

    @property
    def owner(self) -> Owner | None:
        """The state to which it belongs; None for one of an earlier version, which the next state adopts."""


def is_anothers(known: Registered | None, owner: Owner | None) -> bool:
    """Whether this registration belongs to another state, however long ago that was in contact."""
    return known is not None and known.owner is not None and not known.is_released and known.owner != owner


def refuse_another(known: Registered | None, owner: Owner | None) -> None:
    """Raise SourceOwned if this registration belongs to another state."""
    if known and is_anothers(known, owner):
        mine = f"this state is {owner.state} (id {owner.identity})" if owner else "it was asked for without a state"
        raise SourceOwned(f"{described(known)}; {mine}")


def described(known: Registered) -> str:
    """A registration and its owner, as people may see it."""
    owner = known.owner or Owner("unknown")
    contact = f"last contact {roughly(known.silent)} ago" + (f" by {owner.process}" if owner.process else "")
    return f"the source has {known.pipeline} registered for the state {owner.state} (id {owner.identity}), {contact}"
