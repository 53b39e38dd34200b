"""The tables of the state: made on first use, in a schema of their own, with a version."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors

from penstock.coordinators.postgres.locks import number_of
from penstock.coordinators.tables import LETTERS, TERMS
from penstock.errors import StateInvalid

NAME = "penstock_state"
VERSION = 5
_MAKING = number_of("schema")

_IDENTITY = "identity text not null default md5(random()::text || random()::text || clock_timestamp()::text)"

_WORDS = {"schema": f"{NAME}.", "seat": "bigint", "moment": "timestamptz", "end": ""}
_TABLES = f"""
create table {NAME}.about (version integer not null, {_IDENTITY});
insert into {NAME}.about values ({VERSION});
{TERMS.format(**_WORDS)}
{LETTERS.format(**_WORDS, number="bigint generated always as identity primary key", flag="boolean", parked_at="timestamptz")}
alter table {NAME}.watermarks add column step bigint not null default 0, set (fillfactor = 50);
"""

_UPGRADES = {
    1: f"alter table {NAME}.watermarks add column trouble text; alter table {NAME}.dead_letters add column overtaken_by text; "
    f"update {NAME}.about set version = 2",
    2: f"alter table {NAME}.terms add column ttl double precision; update {NAME}.about set version = 3",
    3: f"alter table {NAME}.about add column {_IDENTITY}; update {NAME}.about set version = 4",
    4: f"alter table {NAME}.dead_letters add column facts text, add column headers text, "
    f"add column schema_version bigint; update {NAME}.dead_letters set facts = "
    "json_strip_nulls(json_build_object('new_row_id', new_row_id, 'old_row_id', old_row_id)) "
    "where coalesce(new_row_id, old_row_id) is not null; "
    f"alter table {NAME}.dead_letters drop column old_row_id, drop column new_row_id; update {NAME}.about set version = 5",
}
"""The statements that upgrade each version to the next."""

RIGHTS = f"""
select to_regnamespace('{NAME}') is null, case
    when to_regnamespace('{NAME}') is null then has_database_privilege(current_database(), 'create')
    when :is_new then has_schema_privilege('{NAME}', 'create')
    else (select bool_and(has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
            and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))
        from pg_class where relkind = 'r' and relnamespace = to_regnamespace('{NAME}')) end
"""
"""Whether the schema is missing, and whether this user has the necessary rights."""

_ANOTHER = "name another database under `state`"


def grants(user: str, is_missing: bool) -> str:
    """The statements that give a user the necessary rights."""
    if is_missing:
        return f"as the owner of the database, run: create schema {NAME} authorization {user}"
    return (
        f"as the owner of the schema, run: grant usage, create on schema {NAME} to {user}; "
        f"grant select, insert, update, delete on all tables in schema {NAME} to {user}"
    )


def is_there(connection: psycopg.Connection[Any], where: str) -> bool:
    """Whether the state has its tables, which are upgraded to this version. Raises StateInvalid if they are foreign or newer."""
    [(has_tables, is_ours)] = connection.execute(
        "select exists (select from pg_class where relnamespace = to_regnamespace(%s)), to_regclass(%s) is not null",
        (NAME, f"{NAME}.about"),
    ).fetchall()
    if has_tables and not is_ours:
        raise StateInvalid(f"the schema {NAME} of {where} was not made by Penstock", _ANOTHER)
    if not is_ours:
        return False
    if (version := _version(connection)) in _UPGRADES:
        _upgrade(connection, where)
    elif version != VERSION:
        raise StateInvalid(
            f"the state in {where} has version {version}, and this program reads version {VERSION}", "use the newer program"
        )
    return True


def _version(connection: psycopg.Connection[Any]) -> int:
    [(version,)] = connection.execute(f"select version from {NAME}.about").fetchall()
    return int(version)


def _upgrade(connection: psycopg.Connection[Any], where: str) -> None:
    """Upgrade the tables, unless another process has just done it."""
    try:
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", (_MAKING,))
            while (version := _version(connection)) in _UPGRADES:
                connection.execute(_UPGRADES[version])
    except errors.InsufficientPrivilege as error:
        steps = "; ".join(_UPGRADES[one] for one in range(version, VERSION))
        remedy = f"run penstock status FILE once as the owner of the tables, or: {steps}"
        raise StateInvalid(
            f"the state in {where} has version {version}, and this user may not change its tables", remedy
        ) from error


def make(connection: psycopg.Connection[Any], where: str, user: str) -> None:
    """Make the tables, unless another process has just done it. Raises StateInvalid if this user may not make a schema."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_MAKING,))
        if is_there(connection, where):
            return
        [(is_missing,)] = connection.execute("select to_regnamespace(%s) is null", (NAME,)).fetchall()
        if is_missing:  # `create schema if not exists` would need the right to make one
            try:
                connection.execute(f"create schema {NAME}")
            except errors.InsufficientPrivilege as error:
                raise StateInvalid(f"{user} may not make the schema {NAME} of {where}", grants(user, is_missing=True)) from error
        connection.execute(_TABLES)
