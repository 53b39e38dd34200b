"""The connection that the kinds of state with SQL share. Its statements name their parameters `:name`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Tables(Protocol):
    """A connection to a state store.

    `schema`: the prefix of its tables. `now`: the present moment in its SQL. `is_new`: the store has no tables yet.
    """

    schema: str
    now: str
    is_new: bool

    def rows(self, sql: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows that a statement returns."""

    def write(self, sql: str, /, **values: object) -> bool:
        """Execute one statement; False if it changed no row."""

    def atomic(self, *, flushes: bool = True) -> AbstractContextManager[None]:
        """A transaction; with `flushes` it survives a loss of power once it is committed."""

    def flush(self) -> None:
        """Make all committed transactions survive a loss of power."""


TERMS = """
create table {schema}terms (
    pipeline text primary key, epoch bigint not null, holder text, seat {seat}, beat bigint not null default 0, beat_at {moment},
    ttl double precision, error text
){end};
create table {schema}watermarks (
    pipeline text, lane text, cursor text not null, position bigint not null, delivered bigint, epoch bigint not null,
    attempt bigint not null, total bigint not null default 0, rate double precision not null default 0, advanced_at {moment},
    trouble text, primary key (pipeline, lane)
){end};
create table {schema}standbys (pipeline text, seat {seat}, seen_at {moment} not null, primary key (pipeline, seat)){end};
"""

LETTERS = """
create table {schema}dead_letters (
    number {number}, pipeline text not null, incarnation text not null, lane text not null, position bigint not null,
    ordinal bigint not null, table_name text not null, key text not null, op text not null, before text, after text,
    at bigint not null, facts text, error text, transaction_id bigint, headers text, schema_version bigint, stage text not null,
    code text not null, message text not null, tries bigint not null, epoch bigint not null, behind {flag} not null,
    holds {flag} not null, overtaken {flag} not null default false, overtaken_by text, parked_at {parked_at} not null,
    unique (pipeline, incarnation, lane, position, ordinal)
);
create table {schema}dead_rows (
    pipeline text, table_name text, row_key text, letter bigint, primary key (pipeline, table_name, row_key, letter)
){end};
create index dead_rows_of_letter on {schema}dead_rows (letter);
create table {schema}dead_counts (
    pipeline text primary key, dropped bigint not null, passed bigint not null, redriven bigint not null
){end};
"""
