"""The retry policy of a delivery."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from penstock.settings import refuse, settings
from penstock.text.duration import Duration

LONGEST_ASKED = 300.0
"""The longest wait, in seconds, that a receiver can ask for."""


@settings
class Retry:
    """The tries of a delivery and the waits between them; the treatment of poison, and of later changes of its key."""

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
            self.min < timedelta(milliseconds=1) and "retry.min is too short: write 1ms or more",
            self.min > self.max and "retry.min is longer than retry.max: raise max or lower min",
        )

    def is_spent(self, tries: int) -> bool:
        """Whether no try is left after so many failed ones."""
        return self.tries != "forever" and tries >= self.tries

    def wait(self, tries: int, chance: float, asked: float | None = None) -> float:
        """Seconds to wait after so many failed tries; `asked` is the wait that the receiver requests.

        linear: min, twice min, three times min, up to max. exponential: doubles from min up to max. `chance` in [0, 1) spreads
        the last quarter of the wait, so that senders do not retry at the same time.
        """
        least, most = self.min.total_seconds(), self.max.total_seconds()
        factor = tries if self.policy == "linear" else 2.0 ** min(tries - 1, 60)
        due = min(most, least * factor) * (0.75 + chance / 4)
        return max(due, least, min(asked or 0.0, LONGEST_ASKED))
