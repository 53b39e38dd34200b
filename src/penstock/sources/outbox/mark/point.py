"""Cursors of marked rows."""

from __future__ import annotations

import json

from penstock.cursor import Cursor
from penstock.errors import CursorInvalid
from penstock.source import ANONYMOUS, Stamp
from penstock.sources.outbox.mark.stamp import ATTEMPTS, EPOCHS, POSITIONS

LIFE = "mark"  # the only incarnation: positions are times of the database, also after the table was replaced


def to_cursor(position: int, stamp: Stamp = ANONYMOUS) -> Cursor:
    """The cursor after the row with this position and stamp."""
    facts = {"position": position, "epoch": stamp.epoch, "attempt": stamp.attempt}
    return Cursor(json.dumps(facts, separators=(",", ":")))


def of_cursor(cursor: Cursor) -> tuple[int, Stamp]:
    """Position and stamp of a cursor. Raises CursorInvalid."""
    try:
        facts = json.loads(cursor)
        position, epoch, attempt = facts["position"], facts["epoch"], facts["attempt"]
    except (ValueError, TypeError, KeyError) as error:
        raise CursorInvalid(f"{cursor!r} is not a cursor of marked rows") from error
    bounds = ((position, POSITIONS), (epoch, EPOCHS), (attempt, ATTEMPTS))
    if not all(type(number) is int and 0 <= number < bound for number, bound in bounds):
        raise CursorInvalid(f"{cursor!r} is not a cursor of marked rows")
    return position, Stamp(epoch, attempt)
