"""Where changes go: one module or folder for each kind of sink."""

SINKS = {
    "discard": "penstock.sinks.discard:DiscardSink",
    "webhook": "penstock.sinks.webhook.sink:WebhookSink",
}
