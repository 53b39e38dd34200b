"""Where changes come from: one module or folder for each kind of source."""

SOURCES = {
    "outbox": "penstock.sources.outbox.source:OutboxSource",
    "sqlite": "penstock.sources.sqlite.source:SqliteSource",
}
