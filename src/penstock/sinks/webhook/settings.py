"""The settings of a webhook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from typing import Literal

from penstock.delivery.settings import Batch, Pace
from penstock.retry import Retry
from penstock.settings import absent, refuse, settings
from penstock.sink import Sink
from penstock.sinks.webhook import endpoint, header
from penstock.sinks.webhook.auth import Auth
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.tls import Tls
from penstock.text.duration import Duration

UNVERIFIED = "tls.verify is false: any server that answers at the url is trusted, and can read and accept the changes"

RENAMED = "inquests is now called bisections: rename the key; the next release refuses the old name"

_BISECTIONS = 16


@settings
class WebhookSettings(Sink):
    """POSTs changes to a URL: `parallel` requests at a time, and one more for each of at most `bisections` bisections.

    `service_id` is for format rqlite. `inquests` is the former name of `bisections`.
    """

    url: str = field(repr=False)
    format: Literal["penstock", "rqlite", "debezium", "cloudevents"] = "penstock"
    batch: Batch = Batch()
    parallel: int = 1
    bisections: int | None = absent(str(_BISECTIONS))
    inquests: int | None = None
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
            None not in (self.inquests, self.bisections)
            and "inquests is the former name of bisections, which is given, too: remove inquests",
            *self.pace.complaints(),
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
        if self.tls != Tls() and place.scheme != "https":
            yield "tls is for https: remove it, or use https:// in url"
        is_in_headers = "authorization" in map(str.lower, self.headers)
        named = ("url", place.authorization), ("auth", self.auth.header), ("headers", is_in_headers)
        if len(given := [name for name, value in named if value]) > 1:
            yield f"credentials are given by {' and by '.join(given)}: keep one"

    @property
    def pace(self) -> Pace:
        """The settings of the delivery driver."""
        bisections = self.inquests if self.bisections is None else self.bisections
        return Pace(self.batch, self.parallel, _BISECTIONS if bisections is None else bisections, self.retry)

    @property
    def authorization(self) -> str | None:
        """The value of the header Authorization, unless it is among `headers`."""
        return self.auth.header or endpoint.parse(self.url).authorization

    @property
    def warnings(self) -> list[str]:
        """Legal but probably a mistake."""
        return [*([] if self.tls.verify else [UNVERIFIED]), *([] if self.inquests is None else [RENAMED])]
