"""When to try again, and when to give up."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from penstock.duration import Duration
from penstock.settings import refuse, settings

LONGEST_ASKED = 300.0
"""Seconds: a receiver that asks for more is asked again sooner."""


@settings
class Retry:
    """How often and how patiently a delivery is tried, then what becomes of poison, and of later changes of its key."""

    tries: int | Literal["forever"] = 10
    policy: Literal["linear", "exponential"] = "exponential"
    min: Duration = timedelta(seconds=1)
    max: Duration = timedelta(seconds=30)
    then: Literal["halt", "drop", "dead-letter"] = "halt"
    keys: Literal["wait", "go-on"] = "wait"

    def __post_init__(self) -> None:
        refuse(
            self.keys != "wait"
            and self.then != "dead-letter"
            and f"retry.keys: {self.keys} belongs to then: dead-letter, whose keys can wait: remove it, or change then",
            self.tries != "forever" and self.tries < 1 and f"retry.tries is {self.tries}: write 1 or more, or forever",
            self.min < timedelta(milliseconds=1) and "retry.min is too short: write 1ms or more, or the receiver gets no rest",
            self.min > self.max and "retry.min is longer than retry.max: raise max or lower min",
        )

    def is_spent(self, tries: int) -> bool:
        """Whether so many failed tries are enough."""
        return self.tries != "forever" and tries >= self.tries

    def wait(self, tries: int, chance: float, asked: float | None = None) -> float:
        """Seconds to wait after so many failed tries; the receiver may have asked for more.

        linear: min, twice min, three times min, up to max. exponential: doubles from min up to max. `chance` in [0, 1) spreads
        either over its last quarter, so that many senders do not come back together.
        """
        least, most = self.min.total_seconds(), self.max.total_seconds()
        factor = tries if self.policy == "linear" else 2.0 ** min(tries - 1, 60)
        due = min(most, least * factor) * (0.75 + chance / 4)
        return max(due, least, min(asked or 0.0, LONGEST_ASKED))
