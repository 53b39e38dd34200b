"""Changes as records of Kafka topics: exactly once by transactions, or at least once with many under way."""

from penstock.kind import FileKey, SinkKind

_LOOK_UP = ("probe",)
"""The word of librdkafka for: search the usual folders for certificates."""

KIND = SinkKind(
    settings="penstock.sinks.kafka.sink:KafkaSink",
    page="kafka.md",
    extra="kafka",
    files=[
        FileKey(("config", "ssl.ca.location"), words=_LOOK_UP),
        FileKey(("config", "ssl.certificate.location")),
        FileKey(("config", "ssl.crl.location")),
        FileKey(("config", "ssl.key.location"), is_secret=True),
        FileKey(("config", "ssl.keystore.location"), is_secret=True),
    ],
    checks="penstock.sinks.kafka.checks:checks",
)
