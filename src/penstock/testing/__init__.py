"""Shipped for tests, ours and yours: a receiver with fault dials, oracles, waiting for events."""
