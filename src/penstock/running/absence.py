"""Events of a state store that is unavailable, and available again."""

from __future__ import annotations

import re

from penstock.errors import StateUnavailable
from penstock.event import Observer, StateAway, StateBack


class Absence:
    """The absence of the state of one pipeline. Each change of it is reported once."""

    def __init__(self, pipeline: str, emit: Observer) -> None:
        self._pipeline, self._emit = pipeline, emit
        self._told: str | None = None

    def look(self, trouble: StateUnavailable | None) -> None:
        """Report a change. Messages that differ only in numbers are the same."""
        said = re.sub(r"\d+", "", trouble.message) if trouble else None
        if trouble and said != self._told:
            self._emit(StateAway(pipeline=self._pipeline, **trouble.facts()))
        elif self._told and not trouble:
            self._emit(StateBack(pipeline=self._pipeline))
        self._told = said
