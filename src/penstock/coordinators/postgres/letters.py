"""Dead letters in Postgres. A transaction that changes letters begins with `queued`: one at a time for each pipeline."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Self

import psycopg
from psycopg import errors

from penstock.coordinators.letter_table import LetterTable, Words
from penstock.coordinators.postgres.numbers import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.rows import Row

_WORDS = Words(
    given="unnest(:tables::text[], :keys::text[]) w(table_name, row_key)",
    pairs="json_agg(json_build_array(table_name, nullif(row_key, '')))::text",
    schema=f"{NAME}.",
    parameters=lambda sql: re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql),
)


class PostgresLetters(LetterTable):
    """The tables in the schema of the state."""

    sql = _WORDS.statements()
    refusals = (errors.ProgramLimitExceeded, psycopg.DataError)

    def queued(self) -> Self:
        """Wait for the turn of this transaction, which lasts until its end."""
        self._store.rows("select pg_advisory_xact_lock(%(lock)s)", lock=number_of("letters", self._pipeline))
        return self

    def _listed(self, rows: Collection[Row]) -> Mapping[str, object]:
        return {"tables": [table for table, _ in rows], "keys": [key for _, key in rows]}

    def _stored(self, row: dict[str, object]) -> dict[str, object]:
        return {**row, "message": str(row["message"]).replace("\0", "\ufffd")}  # the only character that Postgres does not take

    def _said(self, error: Exception) -> object:
        return (isinstance(error, psycopg.Error) and error.diag.message_primary) or error
