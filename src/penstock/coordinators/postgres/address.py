"""What a DSN says, and how we connect."""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import ConfigInvalid

PATIENCE = 2
"""Seconds to wait for a connection, and for an answer, at the least."""

DEFAULTS = {
    "application_name": "penstock",
    "client_encoding": "utf8",
    "target_session_attrs": "read-write",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "3000",
}
"""How to connect, where the DSN does not say otherwise: a server that is cut off is noticed within a term."""

_REFUSED = re.compile(
    r"authentication failed|no password supplied|(role|database) \".*\" does not exist|not permitted to log in"
    r"|no pg_hba\.conf entry|pg_hba\.conf rejects|permission denied for database|but SSL was required"
)
"""In the words of a server that speaks English; before a session is there, the driver gives no code."""

_PORTS = re.compile(r"[0-9,]*")


def parts(dsn: str) -> dict[str, str]:
    """Its parameters by name. Raises ConfigInvalid, which does not repeat what may hold a password."""
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:
        found = None
    if found is None or not _PORTS.fullmatch(found.get("port", "")) or "@" in found.get("dbname", ""):
        meant = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : # ? and % in a password as %2F %40 %3A %23 %3F %25"
        raise ConfigInvalid("the address of the Postgres under `state` cannot be understood", meant)
    return found


def patience(dsn: str) -> int:
    """Seconds to wait for a connection, and for an answer. Raises ConfigInvalid."""
    said = parts(dsn).get("connect_timeout", str(PATIENCE))
    try:
        return max(PATIENCE, int(said))
    except ValueError:
        raise ConfigInvalid("state: connect_timeout is not a number of seconds", "write one, such as connect_timeout=10") from None


def is_refusal(said: str) -> bool:
    """Whether no server of an address will ever let us in as we come; the driver says so of each, with a dash before it."""
    attempts = [line for line in said.splitlines() if line.startswith("- ")] or [said]
    return all(_REFUSED.search(attempt) for attempt in attempts)


def complete(dsn: str, patience: int) -> str:
    """The DSN with our defaults, and so many seconds for a connection."""
    return make_conninfo("", **(DEFAULTS | parts(dsn) | {"connect_timeout": str(patience)}))
