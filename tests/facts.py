"""The row ids in the facts of a change."""

from __future__ import annotations

import json

from penstock.change import Change


def row_ids(change: Change) -> tuple[int | None, int | None]:
    """The old and the new one."""
    found = json.loads(change.facts or "{}")
    return found.get("old_row_id"), found.get("new_row_id")


def row_id(change: Change) -> int | None:
    """The new one."""
    return row_ids(change)[1]


def facts(old: int | None, new: int | None) -> str:
    """Facts with these, as a source writes them."""
    ids = {"new_row_id": new, "old_row_id": old}
    return json.dumps({name: row for name, row in ids.items() if row is not None}, separators=(",", ":"))
