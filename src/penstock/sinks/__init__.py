"""Where changes go: one module or folder for each kind of sink."""

SINKS = {
    "discard": "penstock.sinks.discard:DiscardSink",
    "kafka": "penstock.sinks.kafka.sink:KafkaSink",
    "webhook": "penstock.sinks.webhook.sink:WebhookSink",
}
