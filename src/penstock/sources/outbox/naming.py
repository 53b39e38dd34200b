"""The names of an outbox's tables."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.outbox import Layout, quoted

LONGEST = 63 - len("_headers_check")


@dataclass(frozen=True, slots=True)
class Names:
    """The tables of the outbox `table`, which may name a schema, quoted for SQL."""

    table: str
    layout: Layout = "penstock"

    def __post_init__(self) -> None:
        parts = self.table.split(".")
        if len(parts) > 2 or not all(part and part.isprintable() for part in parts) or len(parts[-1].encode()) > LONGEST:
            raise ValueError(f"table is {self.table!r}: write NAME or SCHEMA.NAME, the name with at most {LONGEST} bytes")

    @property
    def rows(self) -> str:
        """The table that applications write to."""
        return quoted(self.table)

    @property
    def window(self) -> str:
        """The recorded windows."""
        return quoted(self.table + "_window")

    @property
    def life(self) -> str:
        """The incarnations of the outbox."""
        return quoted(self.table + "_life")

    @property
    def reader(self) -> str:
        """The registered pipelines."""
        return quoted(self.table + "_reader")

    @property
    def channel(self) -> str:
        """The channel of notifications, not quoted."""
        return f"penstock_{self.table}"

    @property
    def page(self) -> str:
        """The page of the documentation that lists the necessary rights."""
        return "docs/outbox.md" if self.layout == "penstock" else "docs/goharvest.md"

    def part(self, suffix: str) -> str:
        """The name of an index, a constraint or a function of it, without a schema."""
        return quoted(self.table.split(".")[-1] + suffix)

    def init(self, database: str = "DSN") -> str:
        """The command that creates the outbox."""
        table = "" if self.table == "outbox" else f" --table {self.table}"
        layout = "" if self.layout == "penstock" else f" --layout {self.layout}"
        return f"penstock outbox init {database}{table}{layout}"
