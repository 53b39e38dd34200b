"""What an endpoint says to a request, and what it means for the changes. Pure, but for the clock of a Retry-After."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from penstock.delivery.transport import ACCEPTED, Accepted, Deferred, Outcome, Refused
from penstock.poison.parked_keys import Place
from penstock.sinks.webhook.response import REFUSED

SHOWN_CHARACTERS = 120
_TOO_LARGE = 413
_FINAL = (400, _TOO_LARGE, 415, 422)
_NOT_NOW = (429, 503)
_STRANGER = (401, 403)
_CREDENTIALS = " (check the credentials: sink.auth, headers, signing or url)"
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request.

    `status` is None if no answer came. `is_stale`: the endpoint closed a kept connection just as the request was sent on it,
    which is no sign of trouble. `is_unsent`: nobody was reached. `named`: the places of changes that it says it is about.
    `is_void`: a 2xx that is not understood, and so has taken nothing for certain.
    """

    status: int | None
    reason: str
    retry_after: float | None = None
    is_stale: bool = False
    is_unsent: bool = False
    named: frozenset[Place] = frozenset()
    is_void: bool = False

    @property
    def is_taken(self) -> bool:
        """Whether the far side has the changes, but for those it names: any 2xx."""
        return self.status is not None and 200 <= self.status < 300 and not self.is_void

    @property
    def is_final(self) -> bool:
        """Whether it says that these changes will never be taken as they are."""
        return self.status in _FINAL

    @property
    def is_too_large(self) -> bool:
        """Whether it says that the request has too many bytes."""
        return self.status == _TOO_LARGE

    @property
    def is_certain(self) -> bool:
        """Whether it is known that nothing was taken: it was not sent, or the endpoint says that the request itself is at fault."""
        return self.is_unsent or (self.status is not None and 400 <= self.status < 500)

    @property
    def is_refusal(self) -> bool:
        """Whether it may be about the changes: nobody was reached, or asked for time, if not."""
        return not self.is_unsent and self.status not in _NOT_NOW


def answered(status: int, headers: Mapping[str, str], shown: str) -> Answer:
    """An answer with this head, whose body is `shown` to people."""
    if status in _REDIRECTS:
        shown = _redirection(headers.get("location"))
    hint = _CREDENTIALS if status in _STRANGER else ""
    answer = Answer(status, f"status {status}{hint}{shown}", seconds_asked(headers.get("retry-after")))
    refused = headers.get(REFUSED, "")
    return _naming(answer, refused) if refused else answer


def outcome(answer: Answer) -> Outcome:
    """What it means for the changes that were sent."""
    if answer.is_taken:
        return Accepted(answer.reason, answer.named, answer.retry_after) if answer.named else ACCEPTED
    if answer.is_stale or not answer.is_refusal:
        return Deferred(answer.reason, answer.retry_after, answer.is_certain, answer.is_stale)
    return Refused(answer.reason, answer.named, answer.is_final, answer.is_too_large, answer.is_certain, answer.retry_after)


def _redirection(location: str | None) -> str:
    """Where a redirect leads: its host alone, since the rest may hold credentials."""
    try:
        host = urlsplit(location or "").hostname
    except ValueError:
        host = None
    where = f"to the host {host[:SHOWN_CHARACTERS]!a}" if host else "to another path" if location else "to nowhere"
    return f": a redirect {where}, which is not followed; write the final address in url"


def _naming(answer: Answer, refused: str) -> Answer:
    """An answer with what its header Penstock-Refused names. A 2xx of which that cannot be read whole takes nobody knows what."""
    named, unread = places_named(refused)
    if answer.is_taken and unread:
        return _void(answer, f"cannot be read at {unread[:SHOWN_CHARACTERS]!a}")
    return replace(answer, named=named, reason=f"{answer.reason}, named by Penstock-Refused" if answer.is_taken else answer.reason)


def _void(answer: Answer, why: str) -> Answer:
    """The same, as one that has taken nothing for certain, and names nothing."""
    return replace(answer, named=frozenset(), is_void=True, reason=f"status {answer.status}, but its Penstock-Refused {why}")


def places_named(refused: str) -> tuple[frozenset[Place], str]:
    """The changes that a Penstock-Refused header names, by position, with an ordinal if they have one; and what else it says."""
    words = [word for word in re.split(r"[\s,]+", refused) if word]
    found = {word: re.fullmatch(r"(\d{1,19})(?:\.(\d{1,19}))?", word, re.ASCII) for word in words}
    named = frozenset((int(one[1]), int(one[2] or 0)) for one in found.values() if one)
    return named, " ".join(word for word, one in found.items() if not one)


def seconds_asked(retry_after: str | None) -> float | None:
    """The wait that a Retry-After header asks for, in seconds or as a date; None if it cannot be read."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
        return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
