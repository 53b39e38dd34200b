"""An endpoint as a destination of the delivery driver: one request for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from urllib3.connection import HTTPConnection, HTTPSConnection

from penstock.delivery.schedule import Waiting
from penstock.delivery.transport import Attempt, Destination, Outcome, Transport
from penstock.errors import SinkUnavailable
from penstock.event import Warned
from penstock.sink import Assignment
from penstock.sinks.webhook.connection import Connection
from penstock.sinks.webhook.endpoint import Endpoint, parse
from penstock.sinks.webhook.redaction import redactor
from penstock.sinks.webhook.request import Packer
from penstock.sinks.webhook.settings import WebhookSettings


class WebhookTransport(Connection, Transport):
    """Sends each attempt as a POST request."""

    def __init__(self, packer: Packer, *connection: Any) -> None:
        super().__init__(*connection)
        self._packer = packer

    def send(self, changes: Sequence[Waiting], attempt: Attempt) -> Outcome:
        """POST these changes."""
        self.post(*self._packer.pack(changes, attempt.number))
        attempt.under_way()
        return self.answer()


class WebhookDestination(Destination):
    """The endpoint of one delivery."""

    def __init__(self, sink: WebhookSettings, assignment: Assignment) -> None:
        endpoint = parse(sink.url)
        self.shown, self._packer = endpoint.shown, Packer(sink, assignment)
        for warning in sink.warnings:
            assignment.emit(Warned(pipeline=assignment.pipeline, reason=warning))
        self._connection = endpoint, sink.timeout.total_seconds(), _http(sink, endpoint), redactor(sink)

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes in the format."""
        return self._packer.format.texts(changes, previous)

    def connect(self) -> WebhookTransport:
        """A connection, which opens at its first request."""
        return WebhookTransport(self._packer, *self._connection)


def _http(sink: WebhookSettings, endpoint: Endpoint) -> Callable[..., HTTPConnection]:
    """Makes connections, with one TLS context for all of them, since reading the authorities takes time."""
    if endpoint.scheme != "https":
        return HTTPConnection
    try:
        return partial(HTTPSConnection, ssl_context=sink.tls.context(), server_hostname=sink.tls.server_name)
    except ValueError as error:  # the files were usable when the pipeline file was read: a renewal may be incomplete
        raise SinkUnavailable(f"sink.{error}", "check that the file is complete, and on every machine that delivers") from None
