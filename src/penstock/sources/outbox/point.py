"""The place of a reader: incarnation, position, and checksum of the message there."""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.cursor import Cursor
from penstock.errors import CursorInvalid


@dataclass(frozen=True, slots=True)
class Point:
    """After the message at `position`; `checksum` distinguishes it from another message at that position after a restore."""

    incarnation: str
    position: int
    checksum: str = ""

    def to_cursor(self) -> Cursor:
        """The cursor of this place."""
        facts = {"incarnation": self.incarnation, "position": self.position, "witness": self.checksum}
        return Cursor(json.dumps(facts, separators=(",", ":")))


def of_cursor(cursor: Cursor) -> Point:
    """The place of a cursor. Raises CursorInvalid."""
    try:
        facts = dict(json.loads(cursor))
        place = Point(checksum=facts.pop("witness", ""), **facts)
    except (ValueError, TypeError) as error:
        raise CursorInvalid(f"{cursor!r} is not a cursor of an outbox") from error
    if not (isinstance(place.position, int) and isinstance(place.checksum, str) and isinstance(place.incarnation, str)):
        raise CursorInvalid(f"{cursor!r} is not a cursor of an outbox")
    return place
