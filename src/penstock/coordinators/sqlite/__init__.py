"""The embedded coordinator: one SQLite file and a folder of locks next to it."""

from penstock.kind import FileKey, StateKind

KIND = StateKind(
    settings="penstock.coordinators.sqlite.coordinator:SqliteCoordinator",
    page="pipeline-file.md",
    files=[FileKey(("path",))],
    checks="penstock.coordinators.sqlite.checks:checks",
)
