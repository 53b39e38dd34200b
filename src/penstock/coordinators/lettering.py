"""A dead letter as a row of a table, whatever the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.change import CHANGES, Change, Lane, Op, values
from penstock.errors import LetterTooLarge
from penstock.letter import DeadLetter

_NAMES = {"table": "table_name", "transaction": "transaction_id"}
_CHANGE = [_NAMES.get(name, name) for name in CHANGES.names]
_ABOUT = ("pipeline", "incarnation", "lane", "stage", "code", "message", "tries", "epoch", "behind", "holds")
_PASSED = ("overtaken", "overtaken_by")

_KEY_SHOWN = 200

COLUMNS = (*_ABOUT, *_PASSED, "parked_at", *_CHANGE)
"""What is written of a letter; the store gives it its `number`."""


def row_of(pipeline: str, letter: DeadLetter) -> dict[str, object]:
    """The columns of a letter, in their order; no ordinal is 0, so that it can be part of a key: ordinals begin at 1."""
    why = (letter.stage, letter.code, letter.message, letter.tries, letter.epoch)
    passed = (letter.is_overtaken, letter.overtaken_by)
    about = (pipeline, letter.incarnation, letter.lane, *why, letter.is_behind, letter.holds, *passed, letter.parked_at)
    *fields, ordinal = values(letter.change)
    return dict(zip(COLUMNS, (*about, *fields, ordinal or 0), strict=True))


def too_large(letters: Sequence[DeadLetter], said: object) -> LetterTooLarge:
    """The error about the largest of these, which a store has refused with these words."""
    change = max((letter.change for letter in letters), key=_size)
    place = change.position if change.ordinal is None else f"{change.position}.{change.ordinal}"
    key = change.key if len(change.key) <= _KEY_SHOWN else f"{change.key[:_KEY_SHOWN]}..."
    return LetterTooLarge(
        f"change {place} of {change.table}, key {key}, has {_size(change)} characters, and cannot be parked: {said}"
    )


def _size(change: Change) -> int:
    return sum(len(text) for text in (change.key, change.before, change.after) if text)


def letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """The letter of these columns and its `number`."""
    position, op, *fields, ordinal = (row[name] for name in _CHANGE)
    return DeadLetter(
        incarnation=row["incarnation"],
        lane=Lane(row["lane"]),
        change=Change(position, Op(op), *fields).replace(ordinal=ordinal or None),
        stage=row["stage"],
        code=row["code"],
        message=row["message"],
        tries=row["tries"],
        epoch=row["epoch"],
        is_behind=bool(row["behind"]),
        holds=bool(row["holds"]),
        is_overtaken=bool(row["overtaken"]),
        overtaken_by=row["overtaken_by"],
        parked_at=row["parked_at"],
        number=row["number"],
    )
