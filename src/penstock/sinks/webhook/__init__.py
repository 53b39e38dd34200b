"""Changes as JSON batches to an HTTP endpoint, in order, one request under way."""

from penstock.sinks.webhook.sink import Batch, WebhookSink

__all__ = ["Batch", "WebhookSink"]
