"""The webhook sink."""

from __future__ import annotations

from penstock.settings import settings
from penstock.sink import Assignment, Delivery
from penstock.sinks.webhook.settings import WebhookSettings


@settings
class WebhookSink(WebhookSettings):
    """POSTs changes to a URL."""

    def open(self, assignment: Assignment) -> Delivery:
        """Start a delivery."""
        from penstock.delivery.driver import Driver  # threads and the HTTP library are for workers only
        from penstock.sinks.webhook.transport import WebhookDestination

        return Driver(self.pace, assignment, WebhookDestination(self, assignment))
