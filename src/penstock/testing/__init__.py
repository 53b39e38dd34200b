"""Shipped for tests, ours and yours: a receiver with fault dials, a Kafka broker, oracles, waiting for events."""
