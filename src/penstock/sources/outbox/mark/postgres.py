"""The table in Postgres."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import OutboxMissing, OutboxUnfit
from penstock.source import Stamp
from penstock.sources.outbox import database
from penstock.sources.outbox.mark.stamp import POSITIONS, Span, from_, stem
from penstock.sources.outbox.mark.table import Row
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.rows import PAGE_BYTES
from penstock.sources.outbox.schema import SWEEP

if TYPE_CHECKING:
    import psycopg

_COLUMNS = (
    "id, uuid_send(leader_id), kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values,"
    " (extract(epoch from greatest('1970-01-01', least(create_time, '9999-12-31'))) * 1000000)::bigint"
)
# The byte of the version, too: one in 256 of the random marks of other programs lies between ours.
_WITHIN = "leader_id between %(low)s::uuid and %(high)s::uuid and get_byte(uuid_send(leader_id), 6) >> 4 = 8"
_WEIGHT = "octet_length(kafka_key) + coalesce(octet_length(kafka_value), 0) + pg_column_size(kafka_header_values)"
_NAMED = "id = any(%(ids)s::bigint[])"
_DURABLE = "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"


def statements(names: Names) -> list[str]:
    """The SQL that makes the table, as goharvest's guide has it; what is there already stays."""
    return [
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
    ]


class PostgresTable:
    """One table over one connection."""

    def __init__(self, connection: psycopg.Connection[Any], names: Names) -> None:
        self._connection, self._table = connection, names.rows
        self._cursor = connection.cursor(binary=True)

    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """One statement; a row that somebody else marks at the same moment is looked at again before it is taken.

        Its flush makes durable what writers have committed without one: nothing is sent of a transaction that a crash undoes.
        """
        ours = f"(leader_id is null or not ({_WITHIN}))"
        sql = (
            f"with due as (select id from ({_weighed('id', f'{self._table} where {ours} order by id')}) page"
            f" where bytes < {PAGE_BYTES}),"
            " numbered as (select id, row_number() over (order by id)"
            "  + greatest(%(after)s, (extract(epoch from statement_timestamp()) * 1000000)::bigint) as position from due)"
            f" update {self._table} outbox set leader_id = (%(stem)s || lpad(to_hex(position), 13, '0'))::uuid"
            f" from numbered where outbox.id = numbered.id and {ours.replace('leader_id', 'outbox.leader_id')}"
            f" returning {_COLUMNS.replace('id, ', 'outbox.id, ', 1)}"
        )
        facts = {"limit": limit, "after": after, "stem": stem(stamp)} | _bounds(from_(stamp))
        return sorted(_rows(self._cursor.execute(sql.encode(), facts).fetchall()))

    def marked(self, span: Span, most: int | None = None) -> list[tuple[int, str]]:
        """By a look at all rows: there is no index of marks."""
        sql = f"select id, leader_id::text from {self._table} where {_WITHIN} order by id limit %(most)s"
        return self._all(sql, span, most=most)

    def upto(self, span: Span) -> list[tuple[int, str | None, Any]]:
        """By the primary key, once the last is found."""
        last = f"select max(id) from {self._table} where {_WITHIN}"
        sql = f"select id, leader_id::text, kafka_topic, kafka_key from {self._table} where id <= ({last}) order by id"
        return [(row, marked, tuple(key)) for row, marked, *key in self._all(sql, span)]

    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """All of them in one statement."""
        ids, olds, news = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        self._connection.execute(
            f"update {self._table} outbox set leader_id = new from unnest(%s::bigint[], %s::text[]::uuid[], %s::text[]::uuid[])"
            " as given (id, old, new) where outbox.id = given.id and leader_id = old".encode(),
            (ids, olds, news),
        )

    def read(self, span: Span, limit: int) -> list[Row]:
        """In the order of marks."""
        marked = _weighed("leader_id", f"{self._table} where {_WITHIN} order by leader_id")
        sql = f"select {_COLUMNS} from ({marked}) page where bytes < {PAGE_BYTES} order by leader_id"
        return _rows(self._cursor.execute(sql.encode(), {"limit": limit, **_bounds(span)}).fetchall())

    def purge(self, ids: Sequence[int], span: Span) -> int:
        """In one statement, and on the disk when it returns."""
        return self._count(f"delete from {self._table} where {_NAMED} and {_WITHIN}", span, ids=_array(ids))

    def purge_span(self, span: Span, limit: int) -> int:
        """Without waiting for the disk: what a crash brings back is purged again."""
        some = f"select id from {self._table} where {_WITHIN} order by id limit %(limit)s"
        with self._connection.transaction():
            self._connection.execute("set local synchronous_commit = off")
            return self._count(f"delete from {self._table} where id = any(array({some})) and {_WITHIN}", span, limit=limit)

    def reset(self, ids: Sequence[int] | None, span: Span) -> int:
        """Of all rows, if no ids are given."""
        which = "true" if ids is None else _NAMED
        return self._count(f"update {self._table} set leader_id = null where {which} and {_WITHIN}", span, ids=_array(ids or ()))

    def bearing(self, ids: Sequence[int], span: Span) -> int:
        """By the primary key."""
        [(count,)] = self._all(f"select count(*) from {self._table} where {_NAMED} and {_WITHIN}", span, ids=_array(ids))
        return int(count)

    def there(self, ids: Sequence[int]) -> int:
        """By the primary key."""
        sql = f"select count(*) from {self._table} where {_NAMED}"
        [(count,)] = self._connection.execute(sql.encode(), {"ids": _array(ids)}).fetchall()
        return int(count)

    def now(self) -> int:
        """As `mark` takes it."""
        [(now,)] = self._connection.execute(b"select (extract(epoch from statement_timestamp()) * 1000000)::bigint").fetchall()
        return int(now)

    def waiting(self, delivered: Span, most: int | None = None) -> tuple[int, int | None]:
        """A look at all rows."""
        some = f"select create_time from {self._table} where leader_id is null or not ({_WITHIN}) limit %(most)s"
        sql = f"select count(*), (extract(epoch from min(create_time)) * 1000000)::bigint from ({some}) few"
        [(count, at)] = self._all(sql, delivered, most=most)
        return count, at

    def _all(self, sql: str, span: Span, **facts: Any) -> list[Any]:
        return self._connection.execute(sql.encode(), facts | _bounds(span)).fetchall()

    def _count(self, sql: str, span: Span, **facts: Any) -> int:
        return self._cursor.execute(sql.encode(), facts | _bounds(span)).rowcount


@contextmanager
def opened(dsn: str, names: Names, *, anew: bool = False) -> Iterator[PostgresTable]:
    """The table over a connection that commits each statement by itself."""
    try:
        with database.connected(dsn, names, anew=anew) as connection:
            connection.execute(_DURABLE)
            yield PostgresTable(connection, names)
    except (OutboxMissing, OutboxUnfit) as error:
        raise type(error)(error.message, f"{database.remedy_of(names)} --layout goharvest") from error


def create(dsn: str, names: Names) -> bool:
    """Make the table; False if it was there."""
    with database.connected(dsn, names) as connection:
        [(found,)] = connection.execute("select to_regclass(%s)", (names.rows,)).fetchall()
        for statement in statements(names):
            connection.execute(statement.encode())
    return found is None


def _weighed(order: str, rows: str) -> str:
    """The first of these rows, each with the bytes that come before it."""
    before = f"sum({_WEIGHT}) over (order by {order} rows unbounded preceding) - ({_WEIGHT})"
    return f"select *, {before} as bytes from (select * from {rows} limit %(limit)s) few"


def _bounds(span: Span) -> dict[str, str]:
    return {"low": span.low, "high": span.high}


def _array(ids: Sequence[int]) -> str:
    """As text: of a list the driver looks for the smallest type that holds it, each time anew."""
    return "{" + ",".join(map(str, ids)) + "}"


def _rows(found: Sequence[Any]) -> list[Row]:
    marks = struct.unpack(f"!{2 * len(found)}Q", b"".join([row[1] for row in found]))[1::2]
    return [Row(row[0], low & (POSITIONS - 1), *row[2:]) for row, low in zip(found, marks, strict=True)]
