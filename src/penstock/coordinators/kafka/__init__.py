"""The coordinator for those who have Kafka and nothing else: an election by group membership, and a topic that holds the state."""

from penstock.coordinators.kafka.coordinator import KafkaCoordinator

__all__ = ["KafkaCoordinator"]
