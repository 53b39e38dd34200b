"""Changes as records of Kafka topics: exactly once by transactions, at least once, or one record of a key at a time."""

from penstock.kind import FileKey, SinkKind

_LOOK_UP = ("probe",)  # the value with which librdkafka searches the usual folders for certificates
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
    imports=["confluent_kafka.admin", "penstock.sinks.kafka.transactional"],
)
