"""The part of a spec that Spark's planners need: each is a process of its own at every start, so this imports little."""

from __future__ import annotations

import base64
import json
from typing import Literal, NamedTuple

Way = Literal["live", "batch", "ranges"]


class Plan(NamedTuple):
    """How a spec is to be read, its lanes, and the columns of its stream."""

    way: Way
    lanes: list[str]
    ddl: str

    def encode(self) -> str:
        """The plan as one word."""
        return base64.b85encode(json.dumps(self._asdict()).encode()).decode()


def planned(text: str) -> Plan:
    """The plan of a spec's line: to decode all of it would load the clients of databases and brokers."""
    return Plan(**json.loads(base64.b85decode(text.partition(" ")[0])))
