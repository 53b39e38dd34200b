"""How a receiver behaves, and what becomes of a request then: pure decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Dials:
    """How the receiver behaves. A rate is a share of all requests, from 0 to 1; together they are at most 1."""

    fail_rate: float = 0.0  # answered with one of `statuses`, not taken
    hang_rate: float = 0.0  # never answered, not taken
    cut_rate: float = 0.0  # connection closed, not taken
    lose_rate: float = 0.0  # taken, then the connection closed instead of an answer
    statuses: tuple[int, ...] = (500,)
    script: tuple[int, ...] = ()  # statuses of the next requests, before any rate counts; only a 2xx takes
    status: int = 200  # of a request that is taken
    headers: Mapping[str, str] = field(default_factory=dict)  # of every answer
    slow: float = 0.0  # seconds before anything happens
    holds: bool = False  # nothing happens to a request until `release`, or until this is off
    holds_answers: tuple[int, ...] = ()  # answers with one of these statuses wait until this dial is turned again
    poison: str = ""  # a request with this text in its body is answered with one of `statuses`; only a 2xx takes
    largest: int | None = None  # 413 to a request whose body has more bytes
    names_poison: bool = False  # in format penstock, the answer to it names the positions; a 2xx takes the others
    refuses_repeats: bool = False  # 409 to a request with a position that was taken before
    drops_kept: bool = False  # a connection is closed, without notice, when a second request comes on it
    seed: int = 0


class Verdict(NamedTuple):
    """What becomes of a request; no status means no answer."""

    is_taken: bool
    status: int | None = None
    is_closed: bool = False
    refused: Collection[int] = ()


def judge(dials: Dials, chance: float) -> Verdict:
    """What becomes of a request, given a random number in [0, 1)."""
    if dials.script:
        return Verdict(200 <= dials.script[0] < 300, dials.script[0])
    status = dials.statuses[int(chance * 1e6) % len(dials.statuses)]
    failing = Verdict(200 <= status < 300, status)
    hanging, cutting, losing = Verdict(False), Verdict(False, is_closed=True), Verdict(True, is_closed=True)
    rates = (dials.fail_rate, dials.hang_rate, dials.cut_rate, dials.lose_rate)
    for verdict, rate in zip((failing, hanging, cutting, losing), rates, strict=True):
        if chance < rate:
            return verdict
        chance -= rate
    return Verdict(True, dials.status)
