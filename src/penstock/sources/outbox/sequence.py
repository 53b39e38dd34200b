"""The sequence of the ids of an outbox: the check that ids define the order of messages, and the repair."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import OutboxUnfit
from penstock.sources.outbox.database import Connection
from penstock.sources.outbox.naming import Names

_DEFAULT = "'^nextval\\(''([^'']|'''')*''::regclass\\)$'"
"""A default that is the next value of a sequence, not an expression of it."""

FACTS = f"""
select seqrelid::regclass::text as name, seqcache as cache, seqincrement as increment, seqcycle as cycles
from pg_attribute join pg_sequence on seqrelid = case
  when attidentity <> '' then pg_get_serial_sequence(%(table)s::text, 'id')::regclass
  else (select refobjid from pg_attrdef join pg_depend on classid = 'pg_attrdef'::regclass and objid = pg_attrdef.oid
    where adrelid = attrelid and adnum = attnum and refclassid = 'pg_class'::regclass and refobjid <> adrelid
    and pg_get_expr(adbin, adrelid) ~ {_DEFAULT}) end
where attrelid = %(table)s::text::regclass and attname = 'id'
"""

IS_FIT = f"exists (select from ({FACTS}) found where cache = 1 and increment > 0 and not cycles)"
"""Whether `flaw` returns None, for the statement that records a window: its rows got their ids from this sequence."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence. With a `cache` above 1, each session reserves that number of ids."""

    name: str
    cache: int
    increment: int
    cycles: bool


def flaw(found: Sequence | None) -> str | None:
    """The reason why ids do not define the order of transactions that waited for each other; None if they do."""
    if found is None:
        return "their default is not the next value of a sequence"
    if found.cache > 1:
        return f"sessions take {found.cache} values of {found.name} ahead"
    if found.increment < 0:
        return f"the increment of {found.name} is {found.increment}"
    return f"{found.name} cycles" if found.cycles else None


def sequence(connection: Connection, names: Names) -> Sequence | None:
    """The sequence of an outbox; None if ids have another default."""
    row = connection.execute(FACTS.encode(), {"table": names.rows}).fetchone()
    return Sequence(*row) if row else None


def confirm(connection: Connection, names: Names) -> None:
    """Raise OutboxUnfit if ids do not define the order."""
    found = sequence(connection, names)
    if why := flaw(found):
        remedy = names.init() if found else identity_sql(names)
        raise OutboxUnfit(f"the ids of {names.table} do not define the order of its messages: {why}", remedy)


def identity_sql(names: Names) -> str:
    """The SQL that gives an outbox a sequence."""
    table, text = names.rows, "'" + names.rows.replace("'", "''") + "'"
    return (
        f"alter table {table} alter column id drop default; alter table {table} alter column id add generated always as identity;"
        f" select setval(pg_get_serial_sequence({text}, 'id'), max(id)) from {table}"
    )


def mend(connection: Connection, names: Names) -> None:
    """Repair the sequence in the open transaction; messages that are in no window get ids in the order of their times."""
    found = sequence(connection, names)
    if not flaw(found):
        return
    if found is None:
        confirm(connection, names)
    assert found is not None
    execute = connection.execute
    execute(f"lock table {names.rows} in share row exclusive mode".encode())  # all rows with ids are committed then
    execute(f"lock table {names.window} in share row exclusive mode".encode())  # readers of earlier versions do not check ids
    top = execute(f"select greatest(coalesce(max(id), 0), 0) + 1 from {names.rows}".encode()).fetchone()
    assert top is not None
    execute(f"alter sequence {found.name} increment 1 no minvalue no maxvalue restart with {top[0]} cache 1 no cycle".encode())
    waiting = execute(
        f"select id from {names.rows} where not pg_visible_in_snapshot(xid,"
        f" (select upto from {names.window} order by number desc limit 1)) order by created_at, id".encode()
    ).fetchall()
    connection.cursor().executemany(f"update {names.rows} set id = default where id = %s".encode(), waiting)
