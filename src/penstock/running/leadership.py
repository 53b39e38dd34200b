"""Leadership of a pipeline in a thread of its own: Spark never delays a renewal."""

from __future__ import annotations

import os
import re
import secrets
import socket
from contextlib import closing
from threading import Event, Thread

from penstock.coordinator import Candidate, Coordinator, Term
from penstock.errors import Directive, PenstockError, StateUnavailable, TermFenced, TermLost
from penstock.event import Observer, StateAway, StateBack, TermGone

CAMPAIGN_SECONDS = 0.1


def gone(term: Term, loss: TermLost | None) -> TermGone:
    """The event of the end of a term."""
    reason = loss.message if loss else "the store cannot be used"
    return TermGone(pipeline=term.pipeline, epoch=term.epoch, reason=reason, fenced=isinstance(loss, TermFenced))


def holder_name() -> str:
    """A unique name of this process as a holder of terms, for display."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class Leadership(Thread):
    """Campaigns, renews, and campaigns again after a loss, once its owner has released the lost term.

    `asks`: note the epoch before the first term.
    """

    def __init__(self, coordinator: Coordinator, pipeline: str, holder: str, *, asks: bool = False) -> None:
        super().__init__(name=f"leadership of {pipeline}", daemon=True)
        self._coordinator, self._pipeline, self._holder = coordinator, pipeline, holder
        self._held, self._leaving, self._let_go = Event(), Event(), Event()
        self._candidate: Candidate | None = None
        self._term: Term | None = None
        self.loss: TermLost | None = None
        """The error that ended the last term."""
        self.trouble: StateUnavailable | None = None
        """The present error of the store."""
        self._asks = asks
        self.epoch_before: int | None = None
        """The epoch before the first term of this process; None before that, and for later terms."""
        self._error: Exception | None = None

    def enter(self) -> None:
        """Become a candidate, before the start. Raises the error of a store that cannot be used."""
        self._candidate = self._coordinator.candidate(self._pipeline, self._holder)

    def await_term(self, within: float) -> Term | None:
        """The term, as soon as it is held. Raises the error that ended the campaign."""
        is_held = self._held.wait(within)
        if self._error:
            raise self._error
        term = self._term
        if is_held and term is None:  # it was taken and lost before this call
            self.let_go()
        return term

    def is_held(self) -> bool:
        """Whether the term is held, or campaigning has ended with an error."""
        return self._held.is_set()

    def is_lost(self) -> bool:
        """Whether the term that was held is gone."""
        return self._term is None

    def let_go(self) -> None:
        """Campaign again: the lost term is no longer in use."""
        self._held.clear()
        self._let_go.set()

    def leave(self) -> None:
        """Resign a held term, and stop campaigning."""
        self._leaving.set()
        self._let_go.set()
        if self.ident is not None:  # the thread was started
            self.join()
        elif self._candidate:
            candidate, self._candidate = self._candidate, None
            candidate.close()

    def run(self) -> None:
        """Campaign and renew until `leave`."""
        try:
            assert self._candidate, "it has not entered"
            with closing(self._candidate) as candidate:
                self._stand(candidate)
        except Exception as error:  # noqa: BLE001 - `await_term` raises it
            self._term, self._error = None, error  # no thread renews the term any more
            self._held.set()

    def _stand(self, candidate: Candidate) -> None:
        while not self._leaving.wait(CAMPAIGN_SECONDS):
            try:
                before = self._coordinator.pipeline_state(self._pipeline).epoch if self._asks else None
                term = candidate.campaign()
            except StateUnavailable as error:
                self.trouble = error
                continue  # until the store is back, no process can lead
            self.trouble = None
            if term:
                self.epoch_before, self._asks = before, False  # once: each query has a cost
                self._term = term  # last: a thread that sees the term sees the fields above
                self._let_go.clear()
                self._held.set()
                self._keep(candidate)

    def _keep(self, candidate: Candidate) -> None:
        while not self._leaving.wait(self._coordinator.renewal):
            try:
                candidate.renew()
                self.trouble = None
            except TermLost as loss:
                self.trouble = loss.__cause__ if isinstance(loss.__cause__, StateUnavailable) else None
                self._term, self.loss = None, loss
                self._let_go.wait()
                return
            except PenstockError as error:
                if error.directive is not Directive.RETRY:
                    raise
                self.trouble = error if isinstance(error, StateUnavailable) else self.trouble
        self._term = None
        candidate.resign()


class Absence:
    """The absence of the state of one pipeline. Each change of it is reported once."""

    def __init__(self, pipeline: str, emit: Observer) -> None:
        self._pipeline, self._emit = pipeline, emit
        self._reported: str | None = None

    def look(self, trouble: StateUnavailable | None) -> None:
        """Report a change. Messages that differ only in numbers are the same."""
        text = re.sub(r"\d+", "", trouble.message) if trouble else None
        if trouble and text != self._reported:
            self._emit(StateAway(pipeline=self._pipeline, **trouble.facts()))
        elif self._reported and not trouble:
            self._emit(StateBack(pipeline=self._pipeline))
        self._reported = text
