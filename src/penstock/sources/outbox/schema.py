"""Creating an outbox: one table for applications, and three small ones for readers."""

from __future__ import annotations

import uuid

from penstock.errors import OutboxUnfit
from penstock.outbox import quoted
from penstock.sources.outbox.database import Connection, connected
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.sequence import mend

OLDEST = 140000
NOTHING = "1:1:"  # a snapshot in which no transaction is visible
SWEEP = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0"
"""Vacuum after a number of deleted rows, not after a share of a table whose length varies."""

OWNER = ("owner", "owner_state", "owner_process")  # the columns of a registration for its owner


def statements(names: Names, notify: bool = False) -> list[str]:
    """The SQL that creates the missing parts of an outbox."""
    return [
        f"create table if not exists {names.rows} (\n"
        "  id bigint generated always as identity primary key,\n"
        "  xid xid8 not null default pg_current_xact_id(),\n"
        "  topic text not null check (topic <> ''),\n"
        "  key bytea,\n"
        "  value bytea,\n"
        "  header_keys text[],\n"
        "  header_values bytea[],\n"
        "  created_at timestamptz not null default clock_timestamp(),\n"
        f"  constraint {names.part('_headers_check')} check"
        " (coalesce(cardinality(header_keys), 0) = coalesce(cardinality(header_values), 0))\n"
        f") with ({SWEEP})",
        f"create index if not exists {names.part('_xid')} on {names.rows} (xid, id)",
        f"create table if not exists {names.window} (\n"
        "  number bigint primary key,\n"
        "  after bigint not null,\n"
        "  rows bigint not null,\n"
        "  since pg_snapshot not null,\n"
        "  upto pg_snapshot not null,\n"
        "  made_at timestamptz not null default clock_timestamp()\n"
        f") with ({SWEEP})",
        f"create index if not exists {names.part('_window_after')} on {names.window} (after)",
        f"create table if not exists {names.life} (\n"
        "  number bigint primary key,\n"
        "  incarnation text not null,\n"
        "  system bigint not null,\n"
        "  pruned bigint not null default 0,\n"
        "  pruned_at timestamptz,\n"
        "  made_at timestamptz not null default clock_timestamp()\n"
        ") with (fillfactor = 20)",
        f"create table if not exists {names.reader} (\n"
        "  pipeline text not null,\n"
        "  lane text not null,\n"
        "  position bigint not null,\n"
        "  history interval not null,\n"
        "  noted_at timestamptz not null default clock_timestamp(),\n"
        "  released_at timestamptz,\n"
        "  primary key (pipeline, lane)\n"
        ") with (fillfactor = 20)",
        owners(names),
        *(_notifying(names) if notify else ()),
    ]


def owners(names: Names) -> str:
    """The SQL that adds the columns of owners, which outboxes of earlier versions lack."""
    return f"alter table {names.reader} " + ", ".join(f"add column if not exists {column} text" for column in OWNER)


def _notifying(names: Names) -> list[str]:
    function, channel = quoted(names.table + "_notify"), names.channel.replace("'", "''")
    return [
        f"create or replace function {function}() returns trigger language plpgsql as\n"
        f"$$ begin perform pg_notify('{channel}', ''); return null; end $$",
        f"create or replace trigger {names.part('_notify')} after insert on {names.rows}\n"
        f"  for each statement execute function {function}()",
    ]


def init(dsn: str, names: Names, notify: bool = False) -> bool:
    """Create the missing parts and repair the sequence, also after an upgrade; return whether the outbox is new."""
    with connected(dsn, names) as connection:
        if connection.info.server_version < OLDEST:
            raise OutboxUnfit(
                f"the server is Postgres {connection.info.server_version // 10000}", "an outbox needs Postgres 14 or later"
            )
        with connection.transaction():
            _wait_for_purges(connection, names)
            for statement in statements(names, notify):
                connection.execute(statement.encode())
            connection.execute(f"lock table {names.life} in share row exclusive mode".encode())
            is_new = connection.execute(f"select 1 from {names.life}".encode()).fetchone() is None
            if is_new:
                _begin(connection, names, 0)
            mend(connection, names)
    return is_new


def _wait_for_purges(connection: Connection, names: Names) -> None:
    """Lock the incarnations before the other tables, as a purge, a registration and `renew` do: this excludes a deadlock."""
    if connection.execute("select to_regclass(%s::text)", (names.life,)).fetchone() != (None,):
        connection.execute(f"select from {names.life} order by number desc limit 1 for update".encode())
        connection.execute(f"lock table {names.life} in share row exclusive mode".encode())


def renew(dsn: str, names: Names) -> None:
    """Begin a new incarnation, in which all messages of the outbox are undelivered."""
    with connected(dsn, names) as connection, connection.transaction():
        connection.execute(f"lock table {names.life} in share row exclusive mode".encode())
        ends = connection.execute(f"select after + rows from {names.window} order by number desc limit 1".encode()).fetchone()
        _begin(connection, names, ends[0] if ends else 0)


def _begin(connection: Connection, names: Names, position: int) -> None:
    """Begin an incarnation in the open transaction, which becomes the writer of every row; no row is delivered."""
    execute = connection.execute
    execute(f"update {names.reader} set position = %s".encode(), (position,))
    execute(f"update {names.rows} set xid = pg_current_xact_id()".encode())
    execute(f"delete from {names.window}".encode())
    execute(
        f"insert into {names.window} (number, after, rows, since, upto)"
        f" select coalesce(max(number), 0) + 1, %s, 0, %s, %s from {names.life}".encode(),
        (position, NOTHING, NOTHING),
    )
    execute(
        f"insert into {names.life} (number, incarnation, system, pruned)"
        f" select coalesce((select max(number) from {names.life}), 0) + 1, %s, system_identifier, %s"
        " from pg_control_system()".encode(),
        (uuid.uuid4().hex[:16], position),
    )
