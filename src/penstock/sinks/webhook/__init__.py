"""Changes as JSON batches to an HTTP endpoint: a destination of penstock.delivery."""

from penstock.kind import FileKey, SinkKind

KIND = SinkKind(
    settings="penstock.sinks.webhook.sink:WebhookSink",
    page="webhook.md",
    files=[FileKey(("tls", "ca")), FileKey(("tls", "cert")), FileKey(("tls", "key"), is_secret=True)],
    checks="penstock.sinks.webhook.checks:checks",
)
