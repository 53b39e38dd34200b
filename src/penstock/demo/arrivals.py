"""The changes that arrived at the receiver, read from its file while the file grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Arrival:
    """A change in a request that the receiver accepted."""

    change: dict[str, Any]
    received_at: float
    is_repeat: bool

    @property
    def position(self) -> int:
        """The position in the log."""
        return int(self.change["position"])

    @property
    def committed_at(self) -> float:
        """The time of the change, from the log."""
        return datetime.fromisoformat(self.change["at"]).timestamp()

    @property
    def latency(self) -> float:
        """Seconds from the change to its receipt, by the clock of this machine."""
        return max(0.0, self.received_at - self.committed_at)


class Arrivals:
    """Reads the file from the end of the last read; an incomplete line is left for the next read."""

    def __init__(self, out: Path) -> None:
        self._out, self._place, self._highest = out, 0, 0

    def read(self) -> list[Arrival]:
        """The arrivals since the last read."""
        if not self._out.exists():
            return []
        with self._out.open("rb") as file:
            file.seek(self._place)
            lines = file.read().rpartition(b"\n")[0]
        self._place += len(lines) + 1 if lines else 0
        return [arrival for line in lines.splitlines() for arrival in self._of(orjson.loads(line))]

    def _of(self, request: dict[str, Any]) -> Iterator[Arrival]:
        for change in request["body"]["changes"] if request["is_taken"] else ():
            yield Arrival(change, request["at"], change["position"] <= self._highest)
            self._highest = max(self._highest, change["position"])
