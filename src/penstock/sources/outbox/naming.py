"""The names of an outbox's tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.outbox import quoted

LONGEST = 63 - len("_headers_check")


@dataclass(frozen=True)
class Names:
    """What belongs to the outbox `table`, which may name a schema; all of it quoted for SQL."""

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
        """The windows that were recorded."""
        return self._quoted("_window")

    @cached_property
    def life(self) -> str:
        """Which life the outbox is in."""
        return self._quoted("_life")

    @cached_property
    def reader(self) -> str:
        """The pipelines that read it."""
        return self._quoted("_reader")

    @property
    def channel_name(self) -> str:
        """The same as plain text."""
        return f"penstock_{self.table}"

    @cached_property
    def channel(self) -> str:
        """Where writers notify, if they do."""
        return '"' + self.channel_name.replace('"', '""') + '"'

    def part(self, suffix: str) -> str:
        """The name of an index, a constraint or a function of it, without a schema."""
        return quoted(self.table.split(".")[-1] + suffix)

    def _quoted(self, suffix: str) -> str:
        return quoted(self.table + suffix)
