"""Where changes come from: one module or folder for each kind of source."""

SOURCES = {
    "sqlite": "penstock.sources.sqlite.source:SqliteSource",
}
