"""The answer of an endpoint to a request, and the outcome for the changes. Pure, except for the clock of a Retry-After."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from penstock.change import Place
from penstock.delivery.transport import ACCEPTED, Accepted, Deferred, Outcome, Refused
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
    """The result of one request.

    `status` is None without an answer. `is_stale`: the endpoint closed a kept connection as the request was sent, which is no sign
    of trouble. `is_unsent`: no connection was made. `named`: the places of the changes that the answer is about. `is_taken`: the
    receiver has all others, a 2xx; one that cannot be understood accepts nothing for certain.
    """

    status: int | None
    reason: str
    retry_after: float | None = None
    is_stale: bool = False
    is_unsent: bool = False
    named: frozenset[Place] = frozenset()
    is_taken: bool = False


def answered(status: int, headers: Mapping[str, str], shown: str) -> Answer:
    """The Answer for this status and these headers; `shown` is the readable part of the body."""
    if status in _REDIRECTS:
        shown = _redirection(headers.get("location"))
    hint = _CREDENTIALS if status in _STRANGER else ""
    after, is_taken = seconds_asked(headers.get("retry-after")), 200 <= status < 300
    answer = Answer(status, f"status {status}{hint}{shown}", after, is_taken=is_taken)
    refused = headers.get(REFUSED, "")
    return _naming(answer, refused) if refused else answer


def outcome(answer: Answer) -> Outcome:
    """The outcome for the changes that were sent."""
    if answer.is_taken:
        return Accepted(answer.reason, answer.named, answer.retry_after) if answer.named else ACCEPTED
    status = answer.status
    is_certain = answer.is_unsent or (status is not None and 400 <= status < 500)
    if answer.is_stale or answer.is_unsent or status in _NOT_NOW:
        return Deferred(answer.reason, answer.retry_after, is_certain, answer.is_stale)
    return Refused(answer.reason, answer.named, status in _FINAL, status == _TOO_LARGE, is_certain, answer.retry_after)


def _redirection(location: str | None) -> str:
    """The target of a redirect: only its host, since the rest may contain credentials."""
    try:
        host = urlsplit(location or "").hostname
    except ValueError:
        host = None
    where = f"to the host {host[:SHOWN_CHARACTERS]!a}" if host else "to another path" if location else "to nowhere"
    return f": a redirect {where}, which is not followed; write the final address in url"


def _naming(answer: Answer, refused: str) -> Answer:
    """The answer with the changes that Penstock-Refused names. A 2xx with an unreadable one accepts nothing for certain."""
    named, unread = places_named(refused)
    if answer.is_taken and unread:
        reason = f"status {answer.status}, but its Penstock-Refused cannot be read at {unread[:SHOWN_CHARACTERS]!a}"
        return replace(answer, is_taken=False, reason=reason)
    return replace(answer, named=named, reason=f"{answer.reason}, named by Penstock-Refused" if answer.is_taken else answer.reason)


def places_named(refused: str) -> tuple[frozenset[Place], str]:
    """The places that a Penstock-Refused header names (a position, with an ordinal if there is one), and the unreadable rest."""
    words = [word for word in re.split(r"[\s,]+", refused) if word]
    found = {word: re.fullmatch(r"(\d{1,19})(?:\.(\d{1,19}))?", word, re.ASCII) for word in words}
    named = frozenset((int(one[1]), int(one[2] or 0)) for one in found.values() if one)
    return named, " ".join(word for word, one in found.items() if not one)


def seconds_asked(retry_after: str | None) -> float | None:
    """The wait that a Retry-After header requests, in seconds or as a date; None if it cannot be read."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
        return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
