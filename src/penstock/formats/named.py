"""The formats by their names in pipeline files."""

from __future__ import annotations

from typing import Literal

from penstock.formats import Format
from penstock.formats.cloudevents import CloudEventsFormat
from penstock.formats.debezium import DebeziumFormat
from penstock.formats.penstock import PenstockFormat
from penstock.formats.rqlite import RqliteFormat

Name = Literal["penstock", "rqlite", "debezium", "cloudevents"]


def format_named(name: Name, pipeline: str, incarnation: str, service: str | None = None) -> Format:
    """The format of this name for one pipeline; `service` is for rqlite."""
    match name:
        case "penstock":
            return PenstockFormat(pipeline)
        case "rqlite":
            return RqliteFormat(pipeline, service)
        case "debezium":
            return DebeziumFormat(pipeline)
        case "cloudevents":
            return CloudEventsFormat(pipeline, incarnation)
