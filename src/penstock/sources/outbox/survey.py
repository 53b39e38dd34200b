"""The size of an outbox, and the sessions that keep Postgres from reusing the space of settled messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sources.outbox.log import reading
from penstock.sources.outbox.naming import Names

HELD_SECONDS = 60.0  # a transaction that is open for longer is reported
_FACTS = """
with outbox as (select %(table)s::text as name, %(table)s::text::regclass as oid)
select pg_total_relation_size(outbox.oid), coalesce((select n_dead_tup from pg_stat_all_tables where relid = outbox.oid), 0),
  exists (select from pg_trigger where tgrelid = outbox.oid and tgname = %(trigger)s and tgenabled <> 'D')
from outbox
"""

_HOLDERS = """
select 'session ' || pid || coalesce(' of ' || nullif(application_name, ''), '') || coalesce(', role ' || usename, ''),
  extract(epoch from clock_timestamp() - xact_start)::float8, 'select pg_terminate_backend(' || pid || ')'
from pg_stat_activity
where (backend_xid is not null or backend_xmin is not null) and datname = current_database() and pid <> pg_backend_pid()
  and backend_type = 'client backend' and clock_timestamp() - xact_start > make_interval(secs => %(held)s)
union all
select 'prepared transaction ' || quote_literal(gid), extract(epoch from clock_timestamp() - prepared)::float8,
  'commit prepared ' || quote_literal(gid) || ', or roll it back'
from pg_prepared_xacts where database = current_database() and clock_timestamp() - prepared > make_interval(secs => %(held)s)
union all
select 'replication slot ' || slot_name || case when active then '' else ', which is not in use' end, null::float8,
  'wait until its reader has caught up, or drop it'
from pg_replication_slots where xmin is not null or (catalog_xmin is not null and not active)
order by 2 desc nulls last
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, or the like, that keeps vacuum from removing dead rows; the seconds, if known, and the remedy."""

    who: str
    seconds: float | None
    remedy: str


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of an outbox."""

    bytes: int
    dead: int
    has_trigger: bool
    holders: Sequence[Holder]


def survey(dsn: str, names: Names) -> Survey:
    """Query the state of an outbox."""
    with reading(dsn, names) as log:
        size, dead, has_trigger = log.connection.execute(
            _FACTS.encode(), {"table": names.rows, "trigger": names.table.split(".")[-1] + "_notify"}
        ).fetchone() or (0, 0, False)
        holders = [Holder(*row) for row in log.connection.execute(_HOLDERS.encode(), {"held": HELD_SECONDS})]
    return Survey(size, dead, has_trigger, holders)
