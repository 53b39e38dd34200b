"""The Postgres that tests and measurements run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from deadline import PATIENCE, until
from servers.postgres import PostgresServer

ROOT = Path(__file__).parents[1]

_STARTER = """
import os, signal
from servers.postgres import PostgresServer
server = PostgresServer().start()
server.pause()
print(server.folder, server.sockets, server._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_keeps_what_was_committed_over_a_restart_and_a_crash(breakable_postgres: PostgresServer) -> None:
    dsn = breakable_postgres.create_database()
    breakable_postgres.execute("create table t (n int)", dsn)
    for number, end in enumerate((breakable_postgres.stop, breakable_postgres.kill)):
        breakable_postgres.execute(f"insert into t values ({number})", dsn)
        end()
        assert not breakable_postgres.is_running()
        with pytest.raises(psycopg.OperationalError):
            breakable_postgres.execute("select 1")
        breakable_postgres.start()
    assert breakable_postgres.execute("select n from t order by n", dsn) == [(0,), (1,)]


def test_it_starts_again_when_the_last_session_of_a_killed_server_is_gone(breakable_postgres: PostgresServer) -> None:
    with psycopg.connect(breakable_postgres.dsn) as connection:
        session = connection.info.backend_pid
        os.kill(session, signal.SIGSTOP)
        first = int((breakable_postgres.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGKILL)
        until(lambda: not breakable_postgres.is_running())
        ending = Thread(
            target=lambda: (until(lambda: "shared memory" in breakable_postgres.log()), os.kill(session, signal.SIGKILL))
        )
        ending.start()
        breakable_postgres.start()
        ending.join()
    assert breakable_postgres.execute("select 1") == [(1,)]


def test_paused_it_answers_nobody_until_it_goes_on(breakable_postgres: PostgresServer) -> None:
    with psycopg.connect(breakable_postgres.dsn) as connection:
        breakable_postgres.pause()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(breakable_postgres.dsn, connect_timeout=2)
        breakable_postgres.resume()
        assert connection.execute("select 1").fetchone() == (1,)


def test_each_test_has_a_database_of_its_own_over_tcp_and_the_socket(postgres: str, postgres_server: PostgresServer) -> None:
    assert postgres_server.execute("select count(*) from pg_stat_user_tables", postgres) == [(0,)]
    name = postgres.rpartition("/")[2]
    assert postgres_server.execute("select current_database()", postgres_server.socket_dsn_of(name)) == [(name,)]
    settings = (
        "select name, setting from pg_settings where name in ('fsync', 'max_prepared_transactions', 'wal_level') order by name"
    )
    assert postgres_server.execute(settings) == [("fsync", "on"), ("max_prepared_transactions", "20"), ("wal_level", "logical")]


def test_nothing_is_left_when_its_starter_is_killed_not_even_if_it_cannot_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTER], stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False, cwd=ROOT
    )
    *folders, pid = done.stdout.split()
    until(lambda: not any(Path(left).exists() for left in (*folders, f"/proc/{pid}")))


def test_nothing_is_left_after_a_crash() -> None:
    with PostgresServer() as server:
        segment = (server.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert segment in _segments()
        server.kill()
    assert not server.folder.exists()
    assert not server.sockets.exists()
    until(lambda: segment not in _segments())  # its last process may still be ending


def _segments() -> list[str]:
    """All segments of shared memory."""
    return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
