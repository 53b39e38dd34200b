"""The mark of a row: a UUID with the epoch and the attempt of its reader, and its position. Pure.

    50EEEEEE-EEEE-8AAA-8AAP-PPPPPPPPPPPP    E epoch, A attempt, P position

Version 8 keeps it apart from the random ones of other programs. Marks sort by epoch, attempt and position, as numbers and as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.source import ANONYMOUS, Stamp

TAG, VERSION, VARIANT = 0x50 << 120, 0x8 << 76, 0x8 << 60
EPOCHS, ATTEMPTS, POSITIONS = 1 << 40, 1 << 20, 1 << 52


class Span(NamedTuple):
    """All marks from one to another, both included, as text."""

    low: str
    high: str


def mark(stamp: Stamp, position: int) -> str:
    """The mark at this position. Raises OverflowError."""
    epoch, attempt = stamp
    if not (0 <= epoch < EPOCHS and 0 <= attempt < ATTEMPTS and 0 <= position < POSITIONS):
        raise OverflowError(f"no mark can hold epoch {epoch}, attempt {attempt}, position {position}")
    return str(UUID(int=TAG | epoch << 80 | VERSION | (attempt >> 8) << 64 | VARIANT | (attempt & 0xFF) << 52 | position))


def position_of(marked: str) -> int:
    """The position in a mark."""
    return int(marked[-14] + marked[-12:], 16)


def stamp_of(marked: str) -> Stamp:
    """The stamp in a mark."""
    digits = marked.replace("-", "")
    return Stamp(int(digits[2:12], 16), int(digits[13:16] + digits[17:19], 16))


def of(stamp: Stamp, upto: int = POSITIONS - 1, after: int = -1) -> Span:
    """The marks of a stamp after one position, up to another."""
    return Span(mark(stamp, after + 1), mark(stamp, upto))


def before(stamp: Stamp) -> Span:
    """The marks of all stamps before this one; the last is the stamp's own first, which no row has."""
    return Span(mark(ANONYMOUS, 0), mark(stamp, 0))


def later(stamp: Stamp) -> Span:
    """The marks of all stamps after this one; the first is the stamp's own last, which no row has."""
    return Span(mark(stamp, POSITIONS - 1), LAST)


def from_(stamp: Stamp) -> Span:
    """The marks of this stamp and of all later ones: its holder marks no rows that bear them."""
    return Span(mark(stamp, 0), LAST)


LAST = mark(Stamp(EPOCHS - 1, ATTEMPTS - 1), POSITIONS - 1)
EVERY = Span(mark(ANONYMOUS, 0), LAST)  # all marks of Penstock


def astray(found: Sequence[tuple[int, str | None, Any]], own: Span) -> list[int]:
    """The ids of own rows that would be delivered before a lower id of their key; `found` has id, mark and key by id.

    That lower id was given back after a failure: it bears no mark, or a later one.
    """
    last: dict[Any, str] = {}
    rows = []
    for row, marked, key in found:
        is_own = marked is not None and own.low <= marked <= own.high
        if marked and is_own and marked > last.get(key, ""):
            last[key] = marked
            continue
        if is_own:
            rows.append(row)
        last[key] = LAST
    return rows


def renumbered(found: list[tuple[int, str]], after: int) -> tuple[list[tuple[int, str, int]], list[tuple[int, str]]]:
    """Rows (id, mark) that others have marked, divided for a reader that continues after this position.

    Rows after it keep their order, and their positions, unless two are equal. The other rows were marked by a leader already
    deposed, and are marked anew.
    """
    kept, last = [], after
    ahead = sorted((position_of(marked), row, marked) for row, marked in found if position_of(marked) > after)
    for position, row, marked in ahead:
        last = max(last + 1, position)
        kept.append((row, marked, last))
    return kept, [(row, marked) for row, marked in found if position_of(marked) <= after]
