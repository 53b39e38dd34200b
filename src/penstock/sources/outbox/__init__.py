"""The transactional outbox of a Postgres database, read in windows between two snapshots. See DESIGN.md."""

from penstock.kind import FileKey, SourceKind

KIND = SourceKind(
    settings="penstock.sources.outbox.source:OutboxSource",
    readers={"mark": "penstock.sources.outbox.mark.source:MarkSource"},
    page="outbox.md",
    files=[FileKey(("database",))],
    extra="postgres",
    checks="penstock.sources.outbox.checks:checks",
    registered="penstock.sources.outbox.source:registered",
    layouts={
        "penstock": "penstock.sources.outbox.layouts:penstock",
        "goharvest": "penstock.sources.outbox.layouts:goharvest",
    },
)
