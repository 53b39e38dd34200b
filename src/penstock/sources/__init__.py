"""Where changes come from: one module or folder for each kind of source."""

SOURCES = {
    "outbox": "penstock.sources.outbox.source:OutboxSource",
    "sqlite": "penstock.sources.sqlite.source:SqliteSource",
}

READERS = {("outbox", "mark"): "penstock.sources.outbox.mark.source:MarkSource"}
"""Kinds of which another one is meant where their key `reader` says so."""
