"""Dead letters in Postgres. A transaction that changes letters begins with `queued`, which excludes others of the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

import psycopg
from psycopg import errors

from penstock.coordinators.letter_table import LetterTable, statements
from penstock.coordinators.postgres.locks import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.rows import Row


class PostgresLetters(LetterTable):
    """The tables in the schema of the state."""

    sql = statements(
        given="unnest(:tables::text[], :keys::text[]) w(table_name, row_key)",
        pairs="json_agg(json_build_array(table_name, nullif(row_key, '')))::text",
        schema=f"{NAME}.",
    )
    refusals = (errors.ProgramLimitExceeded, psycopg.DataError)

    def queued(self) -> Self:
        """Wait until no other transaction changes letters of this pipeline; the others then wait for this one."""
        self._store.rows("select pg_advisory_xact_lock(:lock)", lock=number_of("letters", self._pipeline))
        return self

    def _listed(self, rows: Collection[Row]) -> Mapping[str, object]:
        return {"tables": [table for table, _ in rows], "keys": [key for _, key in rows]}

    def _stored(self, row: dict[str, object]) -> dict[str, object]:
        return {**row, "message": str(row["message"]).replace("\0", "\ufffd")}  # the only character that Postgres refuses

    def _said(self, error: Exception) -> object:
        return (isinstance(error, psycopg.Error) and error.diag.message_primary) or error
