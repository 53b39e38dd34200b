"""The formats by their names in pipeline files."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.formats import Format
from penstock.formats.cloudevents import CloudEventsFormat
from penstock.formats.debezium import DebeziumFormat
from penstock.formats.penstock import PenstockFormat
from penstock.formats.rqlite import RqliteFormat

FORMATS: Mapping[str, type[Format]] = {
    "penstock": PenstockFormat,
    "rqlite": RqliteFormat,
    "debezium": DebeziumFormat,
    "cloudevents": CloudEventsFormat,
}
