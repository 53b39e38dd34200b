"""Changes as JSON batches to an HTTP endpoint: a transport of penstock.delivery."""

from penstock.delivery.settings import Batch
from penstock.sinks.webhook.sink import WebhookSink

__all__ = ["Batch", "WebhookSink"]
