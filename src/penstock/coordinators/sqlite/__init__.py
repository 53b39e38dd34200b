"""The embedded coordinator: one SQLite file and a folder of locks beside it."""

from penstock.coordinators.sqlite.coordinator import SqliteCoordinator

__all__ = ["SqliteCoordinator"]
