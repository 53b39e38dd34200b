"""The outcome that an answer of an endpoint has for the changes. Pure, except for the clock of a Retry-After."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from penstock.change import Place
from penstock.delivery.transport import Accepted, Deferred, Outcome, Refused
from penstock.sinks.webhook.response import REFUSED

SHOWN_CHARACTERS = 120
_TOO_LARGE = 413
_FINAL = (400, _TOO_LARGE, 415, 422)
_NOT_NOW = (429, 503)
_STRANGER = (401, 403)
_CREDENTIALS = " (check the credentials: sink.auth, headers, signing or url)"
_REDIRECTS = (301, 302, 303, 307, 308)


def outcome(status: int, headers: Mapping[str, str], shown: str, redact: Callable[[str], str] = str) -> Outcome:
    """The outcome of this status and these headers; `shown` is the readable part of the body, `redact` removes secrets.

    A 2xx accepts all changes but those that Penstock-Refused names; with an unreadable one it accepts nothing for certain.
    """
    if status in _REDIRECTS:
        shown = _redirection(redact(headers.get("location", "")))
    reason = f"status {status}{_CREDENTIALS if status in _STRANGER else ''}{shown}"
    after, refused = seconds_asked(headers.get("retry-after")), headers.get(REFUSED, "")
    named, unread = places_named(refused) if refused else (frozenset[Place](), "")
    if 200 <= status < 300:
        if unread:
            _, unread = places_named(redact(refused))  # a secret may contain a comma
            reason = f"status {status}, but its Penstock-Refused cannot be read at {unread[:SHOWN_CHARACTERS]!a}"
            return Refused(reason, after=after)
        return Accepted(f"{reason}, named by Penstock-Refused" if named else reason, named, after)
    is_certain = 400 <= status < 500
    if status in _NOT_NOW:
        return Deferred(reason, after, is_certain)
    return Refused(reason, named, status in _FINAL, status == _TOO_LARGE, is_certain, after)


def _redirection(location: str) -> str:
    """The target of a redirect: only its host, since the rest may contain credentials."""
    try:
        host = urlsplit(location).hostname
    except ValueError:
        host = None
    where = f"to the host {host[:SHOWN_CHARACTERS]!a}" if host else "to another path" if location else "to nowhere"
    return f": a redirect {where}, which is not followed; write the final address in url"


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
