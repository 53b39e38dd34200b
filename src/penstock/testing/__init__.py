"""Shipped for tests, ours and yours: a receiver with fault dials, a Kafka broker, a Spark cluster, oracles, waiting for events."""
