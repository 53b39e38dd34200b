"""The DSN of a state database, and the options of its connections."""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import ConfigInvalid

PATIENCE = 2
"""Least number of seconds to wait for a connection, and for an answer."""

DEFAULTS = {
    "application_name": "penstock",
    "client_encoding": "utf8",
    "target_session_attrs": "read-write",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "3000",
}
"""Options that the DSN may override. They detect an unreachable server within a term."""

_REFUSED = re.compile(
    r"authentication failed|no password supplied|(role|database) \".*\" does not exist|not permitted to log in"
    r"|no pg_hba\.conf entry|pg_hba\.conf rejects|permission denied for database|but SSL was required"
)
"""Messages of a server with English messages: before there is a session, the driver gives no SQLSTATE."""

_PORTS = re.compile(r"[0-9,]*")


def parts(dsn: str) -> dict[str, str]:
    """The parameters of a DSN by name. Raises ConfigInvalid, which quotes no value: it may contain a password."""
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:
        found = None
    if found is None or not _PORTS.fullmatch(found.get("port", "")) or "@" in found.get("dbname", ""):
        form = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : # ? and % in a password as %2F %40 %3A %23 %3F %25"
        raise ConfigInvalid("the Postgres address under `state` is malformed", form)
    return found


def patience(dsn: str) -> int:
    """Seconds to wait for a connection, and for an answer. Raises ConfigInvalid."""
    timeout = parts(dsn).get("connect_timeout", str(PATIENCE))
    try:
        return max(PATIENCE, int(timeout))
    except ValueError:
        raise ConfigInvalid("state: connect_timeout is not a number of seconds", "write one, such as connect_timeout=10") from None


def is_refusal(message: str) -> bool:
    """Whether every server of an address refuses this user; the driver reports each server on a line that begins with a dash."""
    attempts = [line for line in message.splitlines() if line.startswith("- ")] or [message]
    return all(_REFUSED.search(attempt) for attempt in attempts)


def complete(dsn: str, patience: int) -> str:
    """The DSN with the defaults, and this number of seconds for a connection."""
    return make_conninfo("", **(DEFAULTS | parts(dsn) | {"connect_timeout": str(patience)}))
