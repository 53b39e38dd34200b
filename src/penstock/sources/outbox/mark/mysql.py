"""The table in MySQL from 8.0 on, and in MariaDB from 10.6 on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import ConfigInvalid, OutboxMissing, OutboxUnfit, PenstockError, SourceUnavailable
from penstock.outbox import quoted
from penstock.sources.outbox.mark.listed import WITHIN, ListedTable
from penstock.sources.outbox.mark.table import WEIGHED
from penstock.sources.outbox.naming import Names
from penstock.text.dsn import shown

SCHEMES = ("mysql://", "mariadb://")
OPTIONS = {"ssl_ca": str, "ssl_cert": str, "ssl_key": str, "unix_socket": str, "connect_timeout": int, "read_timeout": int}
"""The options of a DSN, after its question mark: arguments of the driver."""

_DEFAULTS: Mapping[str, Any] = {"connect_timeout": 5, "read_timeout": 30, "write_timeout": 30, "charset": "utf8mb4"}
_SESSION = ("set session transaction isolation level read committed", "set time_zone = '+00:00'")
_NO_TABLE, _NO_COLUMN, _REFUSED = (1146, 1051), (1054,), (1044, 1045, 1142, 1143)


def statement(names: Names) -> str:
    """The SQL that creates the table where there is none."""
    return (
        f"create table if not exists {quoted(names.table, '`')} (\n"
        "  id bigint not null auto_increment primary key,\n"
        "  create_time timestamp(6) not null default current_timestamp(6),\n"
        "  kafka_topic varchar(249) not null,\n"
        "  kafka_key varchar(100) not null,\n"
        "  kafka_value varchar(10000),\n"
        "  kafka_header_keys json not null,\n"
        "  kafka_header_values json not null,\n"
        "  leader_id char(36) character set ascii collate ascii_bin\n"
        ") character set utf8mb4"
    )


class MysqlTable(ListedTable):
    """The table in MySQL or MariaDB."""

    within = WITHIN.format("%s")
    made_at = "cast(unix_timestamp(create_time) * 1000000 as signed)"
    clock = "cast(unix_timestamp(now(6)) * 1000000 as signed)"
    locking = "for update skip locked"
    weight = " + ".join(f"coalesce(octet_length({column}), 0)" for column in WEIGHED)

    def __init__(self, cursor: Any, table: str) -> None:
        super().__init__(cursor, table)
        # In a short table the optimizer would examine every row, and wait for writers that have not committed.
        aimed = f"{self.table} as outbox force index (primary)"
        self.updating, self.deleting = f"update {aimed}", f"delete outbox from {aimed}"

    def stamp(self, marks: Sequence[tuple[int, str]]) -> None:
        """All in one statement: one for each would be a round trip for each."""
        columns = "columns (id bigint path '$[0]', mark char(36) character set ascii path '$[1]')"
        given = f"json_table(%s, '$[*]' {columns}) as given"
        if marks:
            aimed = f"{given} straight_join {self.table} as outbox force index (primary) on outbox.id = given.id"
            self.execute(f"update {aimed} set leader_id = mark", [json.dumps(marks)])


@contextmanager
def opened(dsn: str, names: Names, *, anew: bool = False) -> Iterator[MysqlTable]:
    """The table over a connection of its own, whose statements commit by themselves; errors of the driver become PenstockErrors."""
    try:
        import pymysql
    except ImportError as error:
        raise ConfigInvalid("an outbox in MySQL or MariaDB needs PyMySQL", "pip install 'penstock[mysql]'") from error
    try:
        with closing(pymysql.connect(autocommit=True, **_arguments(dsn))) as connection:
            for setting in _SESSION:
                connection.query(setting)
            yield MysqlTable(connection.cursor(), quoted(names.table, "`"))
    except (pymysql.Error, OSError) as error:
        raise _translated(dsn, names, error) from error


def create(dsn: str, names: Names) -> bool:
    """Create the table; False if it existed."""
    with opened(dsn, names) as table:
        schema, _, name = names.table.rpartition(".")
        found = "select 1 from information_schema.tables where table_schema = coalesce(%s, database()) and table_name = %s"
        if is_new := not table.query(found, (schema or None, name)):
            table.execute(statement(names))
    return is_new


def _arguments(dsn: str) -> dict[str, Any]:
    """The arguments of the driver. Raises ConfigInvalid."""
    try:
        parts = urlsplit(dsn)
        given = dict(parse_qsl(parts.query))
        if strange := given.keys() - OPTIONS.keys():
            raise ConfigInvalid(f"{shown(dsn)}: unknown option {min(strange)}", f"the options are {', '.join(OPTIONS)}")
        options = {name: OPTIONS[name](value) for name, value in given.items()}
        found = {"host": parts.hostname or "localhost", "port": parts.port or 3306, "user": unquote(parts.username or "")}
    except ValueError:  # its text may contain a part of the password
        raise ConfigInvalid(
            "source.database is no DSN of MySQL: its port or an option is not a number",
            "write mysql://user:password@host:port/database, and %2F for a / in the password",
        ) from None
    found |= {"password": unquote(parts.password or ""), "database": parts.path.strip("/")}
    if "ssl_ca" in given:  # by default the driver verifies nothing
        found |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    return {**_DEFAULTS, **found, **options}


def _translated(dsn: str, names: Names, error: Exception) -> PenstockError:
    code = error.args[0] if error.args else 0
    said = f"{shown(dsn)}: {' '.join(map(str, error.args)) or type(error).__name__}"
    if code in _NO_TABLE:
        return OutboxMissing(said, names.init())
    if code in _NO_COLUMN:
        return OutboxUnfit(said, names.init())
    if code in _REFUSED:
        return OutboxUnfit(said, f"grant the rights that {names.page} lists to this user")
    return SourceUnavailable(said, "check that the server runs and can be reached")
