"""A/B: the shipped program and another side, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from bench.rig import Figure, at_most

ROUNDS = 3


class Side(NamedTuple):
    """A program: additions to its pipeline file and its environment."""

    addition: str = ""
    environment: Mapping[str, str] = {}


SHIPPED = Side()
AA = "A/A"

Deed = Callable[[Side], float]
"""A measurement of one side, of which less is better."""
Pairs = list[tuple[float, float]]
"""The shipped program and the other side, by round."""


def in_turns(deed: Deed, other: Side) -> Pairs:
    """The rounds; the other side runs first in every second one."""
    return [_pair(deed, other, is_first=bool(number % 2)) for number in range(ROUNDS)]


def _pair(deed: Deed, other: Side, *, is_first: bool) -> tuple[float, float]:
    if is_first:
        without = deed(other)
        return deed(SHIPPED), without
    return deed(SHIPPED), deed(other)


def figure(name: str, pairs: Pairs, most: float) -> Figure:
    """The median ratio of the shipped program to the other side; without a bar for the A/A control."""
    ratio = median(shipped / other for shipped, other in pairs)
    return Figure(name, ratio, "x") if name.startswith(AA) else at_most(name, ratio, "x", most)
