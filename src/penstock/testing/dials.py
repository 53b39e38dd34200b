"""The behaviour of a receiver, and its decision about a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Dials:
    """The behaviour of the receiver. A rate is a share of all requests, from 0 to 1; their sum is at most 1."""

    fail_rate: float = 0.0  # answered with one of `statuses`, not accepted
    hang_rate: float = 0.0  # never answered, not accepted
    cut_rate: float = 0.0  # connection closed, not accepted
    lose_rate: float = 0.0  # accepted, and the connection closed instead of an answer
    statuses: tuple[int, ...] = (500,)
    script: tuple[int, ...] = ()  # statuses of the next requests, before any rate applies; only a 2xx accepts
    status: int = 200  # of an accepted request
    headers: Mapping[str, str] = field(default_factory=dict)  # of every answer
    slow: float = 0.0  # seconds before each decision
    holds: bool = False  # requests wait until `release`, or until this is off
    holds_answers: tuple[int, ...] = ()  # answers with one of these statuses wait until this dial is set again
    poison: str = ""  # a request with this text in its body is answered with one of `statuses`; only a 2xx accepts
    largest: int | None = None  # 413 to a request whose body has more bytes
    names_poison: bool = False  # in format penstock, its answer names the positions; a 2xx accepts the others
    refuses_repeats: bool = False  # 409 to a request with a position that was accepted before
    drops_kept: bool = False  # a connection is closed without an answer to its second request
    seed: int = 0


class Reaction(NamedTuple):
    """The decision about a request; without a status there is no answer."""

    is_taken: bool
    status: int | None = None
    is_closed: bool = False
    refused: Collection[int] = ()


def judge(dials: Dials, chance: float) -> Reaction:
    """The decision about a request, for a random number in [0, 1)."""
    if dials.script:
        return Reaction(200 <= dials.script[0] < 300, dials.script[0])
    status = dials.statuses[int(chance * 1e6) % len(dials.statuses)]
    failing = Reaction(200 <= status < 300, status)
    hanging, cutting, losing = Reaction(False), Reaction(False, is_closed=True), Reaction(True, is_closed=True)
    rates = (dials.fail_rate, dials.hang_rate, dials.cut_rate, dials.lose_rate)
    for verdict, rate in zip((failing, hanging, cutting, losing), rates, strict=True):
        if chance < rate:
            return verdict
        chance -= rate
    return Reaction(True, dials.status)
