"""The table in Postgres."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.source import Stamp
from penstock.sources.outbox import database
from penstock.sources.outbox.mark.stamp import POSITIONS, Span, from_, mark
from penstock.sources.outbox.mark.table import Row, Table
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.rows import PAGE_BYTES
from penstock.sources.outbox.schema import SWEEP

_COLUMNS = (
    "id, uuid_send(leader_id), kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,"
    " (extract(epoch from greatest('1970-01-01', least(create_time, '9999-12-31'))) * 1000000)::bigint"
)
_WEIGHT = "octet_length(kafka_key) + coalesce(octet_length(kafka_value), 0) + pg_column_size(kafka_header_values)"
_DURABLE = "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"


def statement(names: Names) -> str:
    """The SQL that creates the table of goharvest's guide where there is none."""
    return (
        f"create table if not exists {names.rows} (\n"
        "  id bigserial primary key,\n"
        "  create_time timestamptz not null,\n"
        "  kafka_topic varchar(249) not null,\n"
        "  kafka_key varchar(100) not null,\n"
        "  kafka_value varchar(10000),\n"
        "  kafka_header_keys text[] not null,\n"
        "  kafka_header_values text[] not null,\n"
        "  leader_id uuid\n"
        f") with ({SWEEP})"
    )


class PostgresTable(Table):
    """The table in Postgres."""

    # The byte of the version, too: one in 256 of the random marks of other programs lies in the range.
    within = "leader_id between %s::uuid and %s::uuid and get_byte(uuid_send(leader_id), 6) >> 4 = 8"
    text = "leader_id::text"
    made_at = "(extract(epoch from create_time) * 1000000)::bigint"
    clock = "(extract(epoch from statement_timestamp()) * 1000000)::bigint"

    def among(self, ids: Sequence[int]) -> tuple[str, Sequence[Any]]:
        """As one text: for a list the driver searches for the smallest type on every call."""
        return "id = any(%s::bigint[])", ("{" + ",".join(map(str, ids)) + "}",)

    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """One statement; a row that another session marks at the same moment is examined again before it is marked.

        Its flush makes durable the commits that writers made without one: nothing is sent of a transaction that a crash undoes.
        """
        free, left_alone = f"(leader_id is null or not ({self.within}))", from_(stamp)
        sql = (
            f"with due as (select id from ({_weighed('id', f'{self.table} where {free} order by id', limit)}) page"
            f" where bytes < {PAGE_BYTES}),"
            f" numbered as (select id, row_number() over (order by id) + greatest(%s, {self.clock}) as position from due)"
            f" {self.updating} outbox set leader_id = (%s || lpad(to_hex(position), 13, '0'))::uuid"
            f" from numbered where outbox.id = numbered.id and {free.replace('leader_id', 'outbox.leader_id')}"
            f" returning {_COLUMNS.replace('id, ', 'outbox.id, ', 1)}"
        )
        stem = mark(stamp, 0)[:22]  # the digits before the position
        return sorted(_rows(self.query(sql, (*left_alone, after, stem, *left_alone))))

    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """All of them in one statement."""
        ids, olds, news = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        self.execute(
            f"{self.updating} outbox set leader_id = new from unnest(%s::bigint[], %s::text[]::uuid[], %s::text[]::uuid[])"
            " as given (id, old, new) where outbox.id = given.id and leader_id = old",
            (ids, olds, news),
        )

    def read(self, span: Span, limit: int) -> list[Row]:
        """One statement."""
        marked = _weighed("leader_id", f"{self.table} where {self.within} order by leader_id", limit)
        return _rows(self.query(f"select {_COLUMNS} from ({marked}) page where bytes < {PAGE_BYTES} order by leader_id", span))

    def purge_span(self, span: Span, limit: int) -> int:
        """Without waiting for the disk: rows that a crash restores are purged again."""
        some = f"select id from {self.table} where {self.within} order by id limit {limit}"
        with self._connection.transaction():
            self._connection.execute("set local synchronous_commit = off")
            return self.execute(f"{self.deleting} where id = any(array({some})) and {self.within}", (*span, *span))


@contextmanager
def opened(dsn: str, names: Names, *, anew: bool = False) -> Iterator[PostgresTable]:
    """The table over a connection that commits each statement by itself."""
    with database.connected(dsn, names, anew=anew) as connection:
        connection.execute(_DURABLE)
        yield PostgresTable(connection.cursor(binary=True), names.rows)


def create(dsn: str, names: Names) -> bool:
    """Create the table; False if it existed."""
    with opened(dsn, names) as table:
        [(found,)] = table.query("select to_regclass(%s)", (names.rows,))
        table.execute(statement(names))
    return found is None


def _weighed(order: str, rows: str, limit: int) -> str:
    """The first of these rows, each with the bytes of the rows before it."""
    before = f"sum({_WEIGHT}) over (order by {order} rows unbounded preceding) - ({_WEIGHT})"
    return f"select *, {before} as bytes from (select * from {rows} limit {limit}) few"


def _rows(found: Sequence[Any]) -> list[Row]:
    marks = struct.unpack(f"!{2 * len(found)}Q", b"".join([row[1] for row in found]))[1::2]
    return [Row(row[0], low & (POSITIONS - 1), *row[2:]) for row, low in zip(found, marks, strict=True)]
