"""The coordinator for installations with Kafka only: an election by group membership, and a topic that holds the state."""

from penstock.kind import StateKind

KIND = StateKind(
    settings="penstock.coordinators.kafka.coordinator:KafkaCoordinator",
    page="pipeline-file.md",
    extra="kafka",
    imports=["confluent_kafka.admin"],
    schemes=("kafka",),
    term="cannot be set with state: kafka://, where session-timeout in the address is the length of a term",
)
