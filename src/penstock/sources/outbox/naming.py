"""The names of an outbox's tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.outbox import quoted

LONGEST = 63 - len("_headers_check")


@dataclass(frozen=True)
class Names:
    """The tables of the outbox `table`, which may name a schema, quoted for SQL."""

    table: str

    def __post_init__(self) -> None:
        parts = self.table.split(".")
        if len(parts) > 2 or not all(part and part.isprintable() for part in parts) or len(parts[-1].encode()) > LONGEST:
            raise ValueError(f"table is {self.table!r}: write NAME or SCHEMA.NAME, the name with at most {LONGEST} bytes")

    @cached_property
    def rows(self) -> str:
        """The table that applications write to."""
        return self._quoted("")

    @cached_property
    def window(self) -> str:
        """The recorded windows."""
        return self._quoted("_window")

    @cached_property
    def life(self) -> str:
        """The incarnations of the outbox."""
        return self._quoted("_life")

    @cached_property
    def reader(self) -> str:
        """The registered pipelines."""
        return self._quoted("_reader")

    @property
    def channel(self) -> str:
        """The channel of notifications, not quoted."""
        return f"penstock_{self.table}"

    def part(self, suffix: str) -> str:
        """The name of an index, a constraint or a function of it, without a schema."""
        return quoted(self.table.split(".")[-1] + suffix)

    def _quoted(self, suffix: str) -> str:
        return quoted(self.table + suffix)
