"""Prometheus metrics and health of the pipelines of a process. `docs/operations.md` has the table."""
