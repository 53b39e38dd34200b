"""Row capture in SQLite by triggers."""

from penstock.kind import FileKey, SourceKind

KIND = SourceKind(
    settings="penstock.sources.sqlite.source:SqliteSource",
    page="capture.md",
    files=[FileKey(("database",))],
    checks="penstock.sources.sqlite.checks:checks",
    registered="penstock.sources.sqlite.source:registered",
    capture="penstock.sources.sqlite.commands:SqliteCapture",
)
