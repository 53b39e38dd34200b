"""Tables rebuilt from changes, as a receiver would keep them: rows, changes of schema, and rescans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.change import Place

Row = Mapping[str, Any]


def canonical(value: Any) -> str:
    """One text for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def row_name(table: str, key: Mapping[str, Any]) -> str:
    """The name of a row."""
    return f"{table} {canonical(key)}"


class Replica:
    """The tables, each a mapping from the name of a row to the row; changes up to the last one of their row are ignored."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Row]] = {}
        self._highest: dict[str, Place] = {}

    def take(self, place: Place, change: Mapping[str, Any], rows: Iterable[str]) -> None:
        """Apply a change, which is about these rows."""
        if place <= max(self._highest.get(row, (0, 0)) for row in rows):
            return
        self._highest |= dict.fromkeys(rows, place)
        if change["op"] == "schema":
            self._alter(change["table"], change.get("before"), change.get("after"))
            return
        table = self.tables.setdefault(change["table"], {})
        for row in rows:
            table.pop(row, None)
        if "after" in change:
            table[row_name(change["table"], change["key"])] = change["after"]

    def _alter(self, table: str, was: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
        if now is None:
            self.tables[table] = {}
        elif was is not None:
            rows = self.tables.pop(was["table"], {})
            self.tables[table] = dict(self._moved(name, row, was, now) for name, row in rows.items())
        elif now.get("rescan") == "end":
            rows = self.tables.get(table, {})
            self.tables[table] = {name: row for name, row in rows.items() if self._highest[name][0] > now["since"]}

    def _moved(self, name: str, row: Row, was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Row]:
        """A row in the present table, under its present name."""
        renamed = now.get("renamed", {})
        values = {renamed.get(column, column): value for column, value in row.items()}
        kept = {column: value for column, value in values.items() if column in now["columns"]} | now.get("added", {})
        key = {renamed.get(column, column): value for column, value in json.loads(name.removeprefix(was["table"] + " ")).items()}
        self._highest[row_name(now["table"], key)] = self._highest[name]
        return row_name(now["table"], key), kept
