"""The embedded coordinator: one SQLite file and a folder of locks next to it."""

from penstock.kind import StateKind

KIND = StateKind(
    settings="penstock.coordinators.sqlite.coordinator:SqliteCoordinator",
    page="pipeline-file.md",
    checks="penstock.coordinators.sqlite.checks:checks",
)
