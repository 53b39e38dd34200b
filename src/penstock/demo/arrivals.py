"""What has come to the receiver: read from its file as it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Arrival:
    """One change in one request that the receiver took."""

    change: dict[str, Any]
    received_at: float
    is_repeat: bool

    @property
    def position(self) -> int:
        """Its place in the log."""
        return int(self.change["position"])

    @property
    def committed_at(self) -> float:
        """When it was made, as the log says."""
        return datetime.fromisoformat(self.change["at"]).timestamp()

    @property
    def latency(self) -> float:
        """Seconds from the change to its receipt; both clocks are this machine's."""
        return max(0.0, self.received_at - self.committed_at)


class Arrivals:
    """Reads on where it left off; a line that is not whole yet is left for the next time."""

    def __init__(self, out: Path) -> None:
        self._out, self._place, self._highest = out, 0, 0

    def read(self) -> list[Arrival]:
        """What has come since the last time."""
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
