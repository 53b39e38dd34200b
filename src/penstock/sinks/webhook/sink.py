"""The settings of a webhook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from penstock.duration import Duration
from penstock.retry import Retry
from penstock.settings import refuse, settings
from penstock.sink import Assignment
from penstock.sinks.webhook import endpoint, header
from penstock.sinks.webhook.auth import Auth
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.tls import Tls
from penstock.size import Bytes, Size

if TYPE_CHECKING:
    from penstock.sinks.webhook.delivery import WebhookDelivery

MOST_PARALLEL = 64
"""Requests under way: each has a thread and a connection."""

UNVERIFIED = "tls.verify is false: whoever answers at the url is believed, and can read and take the changes"


@settings
class Batch:
    """How many changes and bytes of them go in one request, and how long the first change waits for others."""

    size: int = 100
    bytes: Size = Bytes(8_000_000)
    delay: Duration = timedelta(milliseconds=5)

    def __post_init__(self) -> None:
        refuse(
            self.size < 1 and f"batch.size is {self.size}: it must be 1 or more",
            self.delay < timedelta(0) and "batch.delay is negative: write 0ms or more",
        )


@settings
class WebhookSink:
    """POSTs changes to a URL, `parallel` requests at a time, and beside them one for each of at most so many `inquests`.

    `service_id` is for format rqlite.
    """

    url: str = field(repr=False)
    format: Literal["penstock", "rqlite", "debezium", "cloudevents"] = "penstock"
    batch: Batch = Batch()
    parallel: int = 1
    inquests: int = 16
    timeout: Duration = timedelta(seconds=5)
    retry: Retry = Retry()
    service_id: str | None = None
    compression: Literal["none", "gzip"] = "none"
    auth: Auth = Auth()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls = Tls()
    signing: Signing = Signing()

    def __post_init__(self) -> None:
        refuse(
            *self._connection_complaints(),
            not 1 <= self.parallel <= MOST_PARALLEL and f"parallel is {self.parallel}: it must be from 1 to {MOST_PARALLEL}",
            not 0 <= self.inquests <= MOST_PARALLEL and f"inquests is {self.inquests}: it must be from 0 to {MOST_PARALLEL}",
            self.timeout <= timedelta(0) and "timeout is not positive: write 1ms or more",
            self.service_id is not None
            and self.format != "rqlite"
            and "service_id belongs to format rqlite: remove it, or set format: rqlite",
        )

    def _connection_complaints(self) -> Iterator[str]:
        yield from header.complaints(self.headers)
        try:
            place = endpoint.parse(self.url)
        except ValueError as error:
            yield str(error)
            return
        if self.tls.is_given and place.scheme != "https":
            yield "tls is for https: remove it, or let url begin with https://"
        named = ("url", place.authorization), ("auth", self.auth.header), ("headers", header.has_authorization(self.headers))
        if len(given := [name for name, value in named if value]) > 1:
            yield f"credentials are given by {' and by '.join(given)}: keep one"

    @property
    def authorization(self) -> str | None:
        """What the header Authorization says, unless it is among `headers`."""
        return self.auth.header or endpoint.parse(self.url).authorization

    def warnings(self) -> list[str]:
        """What is possible and yet hardly meant."""
        return [] if self.tls.verify else [UNVERIFIED]

    def open(self, assignment: Assignment) -> WebhookDelivery:
        """Start delivering."""
        from penstock.sinks.webhook.delivery import WebhookDelivery  # the HTTP library is for workers only

        return WebhookDelivery(self, assignment)
