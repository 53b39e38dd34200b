"""Where a reader of the log stands: a position, the life of the log it belongs to, and how the change there looks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from penstock.cursor import Cursor
from penstock.errors import CursorInvalid


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the change at `position`, whose digest is `witness`; an empty one before the first change of the log."""

    incarnation: str
    position: int
    witness: str

    def to_cursor(self) -> Cursor:
        """The cursor that says this."""
        return Cursor(json.dumps(asdict(self), separators=(",", ":")))


def of_cursor(cursor: Cursor) -> Place:
    """The place a cursor names. Raises CursorInvalid."""
    try:
        place = Place(**json.loads(cursor))
    except (ValueError, TypeError) as error:
        raise CursorInvalid(f"{cursor!r} is not a cursor of a SQLite log") from error
    if not (isinstance(place.position, int) and isinstance(place.witness, str) and isinstance(place.incarnation, str)):
        raise CursorInvalid(f"{cursor!r} is not a cursor of a SQLite log")
    return place
