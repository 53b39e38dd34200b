"""The term that a candidate holds."""

from __future__ import annotations

from penstock.coordinator import Term
from penstock.errors import TermLost


class HeldTerm:
    """The term of a candidate; none at first."""

    def __init__(self, pipeline: str, holder: str) -> None:
        self._pipeline, self._holder = pipeline, holder
        self.term: Term | None = None

    def enter(self, epoch: int) -> None:
        """Hold the term of this epoch."""
        self.term = Term(self._pipeline, self._holder, epoch)

    def leave(self) -> Term | None:
        """Hold no term; returns the previous one."""
        term, self.term = self.term, None
        return term

    def held(self) -> Term:
        """The term. Raises TermLost if there is none."""
        if not self.term:
            raise TermLost(f"{self._holder} does not lead {self._pipeline}")
        return self.term

    def lost(self, reason: str, kind: type[TermLost] = TermLost) -> TermLost:
        """Hold no term, for this reason; returns the error to raise."""
        epoch = self.held().epoch
        self.term = None
        return kind(f"{self._holder} no longer leads {self._pipeline} (term {epoch}): {reason}")


def ended(term: Term) -> TermLost:
    """The error of a holder whose term is not the current one."""
    return TermLost(f"{term.holder} no longer leads {term.pipeline}: its term {term.epoch} has ended")
