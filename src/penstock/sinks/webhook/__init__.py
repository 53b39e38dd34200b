"""Changes as JSON batches to an HTTP endpoint, in order, one request under way, or several with each row in order."""

from penstock.sinks.webhook.sink import Batch, WebhookSink

__all__ = ["Batch", "WebhookSink"]
