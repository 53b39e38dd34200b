"""An endpoint as a destination of the delivery driver: one request for each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from penstock.delivery.schedule import Waiting
from penstock.delivery.transport import Attempt, Destination, Outcome, Transport
from penstock.errors import SinkUnavailable
from penstock.event import Warned
from penstock.failpoint import reach
from penstock.sink import Assignment
from penstock.sinks.webhook.answer import outcome
from penstock.sinks.webhook.connection import Connection, Security
from penstock.sinks.webhook.endpoint import Endpoint, parse
from penstock.sinks.webhook.redaction import Redactor
from penstock.sinks.webhook.request import Packer
from penstock.sinks.webhook.settings import WebhookSettings


class WebhookTransport(Transport):
    """Sends each attempt as a POST request."""

    def __init__(self, connection: Connection, packer: Packer) -> None:
        self.connection, self._packer = connection, packer

    def send(self, changes: Sequence[Waiting], attempt: Attempt) -> Outcome:
        """POST these changes."""
        request = self._packer.pack(changes)
        self.connection.send(request.body, request.numbered(attempt.number))
        attempt.under_way()
        answer = self.connection.answer()
        if answer.status is not None:
            reach("sink.sent")
        return outcome(answer)

    def sever_if_late(self) -> None:
        """The connection applies the limit."""
        self.connection.sever_if_late()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class WebhookDestination(Destination):
    """The endpoint of one delivery."""

    def __init__(self, sink: WebhookSettings, assignment: Assignment) -> None:
        endpoint = parse(sink.url)
        self.shown, self._packer = endpoint.shown, Packer(sink, assignment)
        timeout = sink.timeout.total_seconds()
        for warning in sink.warnings:
            assignment.emit(Warned(pipeline=assignment.pipeline, reason=warning))
        self._connected = partial(Connection, endpoint, timeout, _security(sink, endpoint), Redactor(sink))

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes in the format."""
        return self._packer.format.texts(changes, previous)

    def connect(self) -> WebhookTransport:
        """A connection, which opens at its first request."""
        return WebhookTransport(self._connected(), self._packer)


def _security(sink: WebhookSettings, endpoint: Endpoint) -> Security | None:
    """Made once for all connections, since reading the authorities takes time."""
    if endpoint.scheme != "https":
        return None
    try:
        return Security(sink.tls.context(), sink.tls.server_name)
    except ValueError as error:  # the files were usable when the pipeline file was read: a renewal may be incomplete
        raise SinkUnavailable(f"sink.{error}", "check that the file is complete, and on every machine that delivers") from None
