"""The part of a spec for the planners of Spark: each is a new process at every start, so that this module imports little."""

from __future__ import annotations

import base64
import json
from typing import Literal, NamedTuple


class Plan(NamedTuple):
    """The mode of reading a spec, the lanes to read, and the columns of its stream."""

    way: Literal["live", "batch"]
    lanes: list[str]
    ddl: str

    def encode(self) -> str:
        """The plan as one word."""
        return base64.b85encode(json.dumps(self._asdict()).encode()).decode()


def planned(text: str) -> Plan:
    """The plan in the line of a spec, read without the rest, which imports clients of databases and brokers."""
    return Plan(**json.loads(base64.b85decode(text.partition(" ")[0])))
