"""Changes as records of Kafka topics: exactly once by transactions, or at least once with many under way."""

from penstock.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
