"""A batch as a request: its body and headers, of which only the number, the time and the signature differ between tries."""

from __future__ import annotations

import gzip
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from operator import attrgetter
from urllib.parse import quote

from penstock import signature
from penstock.delivery.schedule import Waiting
from penstock.formats.named import FORMATS
from penstock.sink import Assignment
from penstock.sinks.webhook.settings import WebhookSettings

_TEXT = attrgetter("text")
_LEVEL = 6  # of gzip: a higher one takes much time for few bytes


class Packer:
    """Makes the requests of one assignment."""

    def __init__(self, sink: WebhookSettings, assignment: Assignment) -> None:
        self.format = FORMATS[sink.format](assignment.pipeline, assignment.incarnation, sink.service_id)
        self._key = f"{_safe(assignment.pipeline)}-{_safe(assignment.incarnation)}"
        self._is_redrive = assignment.is_redrive
        self._headers = _headers(sink, self.format.content_type, assignment)
        self._has_gaps = sink.parallel > 1 or assignment.poison.then != "halt" or assignment.poison.has_letters
        self._signing, self._compression = sink.signing, sink.compression

    def pack(self, changes: Sequence[Waiting], attempt: int) -> tuple[bytes, dict[str, str]]:
        """The body and headers of one try to send these changes."""
        body = self.format.body(map(_TEXT, changes))
        key = f"{self._key}-{changes[0].place}-{changes[-1].place}{self._rest(changes)}{self._redriven(body)}"
        headers = {**self._headers, "Idempotency-Key": key, "Penstock-Attempt": str(attempt)}
        if self._signing.secret:
            headers |= self._signing.headers(signature.named(key, self._headers), body)
        return compressed(body, self._compression), headers

    def _redriven(self, body: bytes) -> str:
        """A key of its own for each redrive: a receiver that stores answers by key would repeat its refusal."""
        return f"-redriven-{_digest(body)}" if self._is_redrive else ""

    def _rest(self, changes: Sequence[Waiting]) -> str:
        """A digest of all places, where parallel connections or poison can cut different batches with the same ends."""
        if not self._has_gaps or changes[-1].number - changes[0].number == len(changes) - 1:
            return ""
        return "-" + _digest(array("q", chain.from_iterable(change.at for change in changes)))


def compressed(body: bytes, compression: str) -> bytes:
    """The body in the content encoding; it contains no time, so repeats are equal."""
    return gzip.compress(body, _LEVEL, mtime=0) if compression == "gzip" else body


def _digest(data: bytes | array[int]) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _headers(sink: WebhookSettings, content_type: str, assignment: Assignment) -> dict[str, str]:
    own = {
        "Penstock-Lane": quote(assignment.lane, safe=":"),
        "Penstock-Incarnation": _safe(assignment.incarnation),
        "Penstock-Epoch": str(assignment.epoch),
        **({"Penstock-Redriven": "true"} if assignment.is_redrive else {}),
    }
    return headers_with(own, sink, content_type, assignment.pipeline)


def headers_with(own: Mapping[str, str], sink: WebhookSettings, content_type: str, pipeline: str) -> dict[str, str]:
    """The headers of every request with these settings, and `own`."""
    return {
        "Content-Type": content_type,
        "User-Agent": f"penstock/{version('penstock')}",
        "Penstock-Pipeline": _safe(pipeline),
        **own,
        **({"Content-Encoding": sink.compression} if sink.compression != "none" else {}),
        **sink.headers,
        **({"Authorization": sink.authorization} if sink.authorization else {}),
    }


def _safe(name: str) -> str:
    return quote(name, safe="")
