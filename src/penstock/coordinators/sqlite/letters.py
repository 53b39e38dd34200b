"""Dead letters in the state file."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import orjson

from penstock.coordinators.letter_table import LetterTable, statements
from penstock.rows import Row


class SqliteLetters(LetterTable):
    """The tables in the state file."""

    sql = statements(
        given="(select value->>0 as table_name, value->>1 as row_key from json_each(:rows)) w",
        pairs="json_group_array(json_array(table_name, nullif(row_key, '')))",
        joined="cross join",
    )
    refusals = (sqlite3.DataError, OverflowError)  # of a value above a gigabyte, and of a text above two

    def _listed(self, rows: Collection[Row]) -> Mapping[str, object]:
        return {"rows": orjson.dumps([*rows]).decode()}

    def _stored(self, row: dict[str, object]) -> dict[str, object]:
        assert isinstance(row["parked_at"], datetime)
        return {**row, "parked_at": row["parked_at"].astimezone(UTC).isoformat(timespec="milliseconds")}
