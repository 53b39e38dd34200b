"""The demo: a pipeline from a small shop in SQLite to a receiver that fails and recovers."""
