"""Events as lines of the process log: text or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from penstock.event import Event
from penstock.text.printable import as_json, printable


def text_line(event: Event, now: datetime) -> str:
    """The event as text."""
    return printable(f"{now.astimezone():%H:%M:%S} {event.level:7} {event.pipeline}: {event.text}")


def json_line(event: Event, now: datetime) -> str:
    """The event as one JSON object."""
    return json_facts(type(event).__name__, event.level, asdict(event), now)


def json_facts(event: str, level: str, facts: Mapping[str, Any], now: datetime) -> str:
    """One JSON object for facts that are not an event of a pipeline."""
    at = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return as_json({"at": at, "level": level, "event": event, **facts}, separators=(",", ":"))
