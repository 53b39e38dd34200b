"""Who takes part: how each is prepared, started, known to be ready, and stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.peers.debezium import properties
from bench.peers.postgres import Postgres
from bench.peers.writers import PostgresWriter, SQLiteWriter, Writer
from bench.rig import Tree, has_claimed, penstock_run, shop
from penstock.spark.java import find_java

ROOT = Path(__file__).parents[2]


class Contender(Protocol):
    """Prepared in a folder; it may run several times, each from where the last one ended."""

    folder: Path
    writer: Writer

    def running(self) -> Any:
        """A context manager that gives the tree of its processes."""

    def is_ready(self) -> bool:
        """Whether what is written from now on will be delivered."""

    def database_seconds(self) -> float:
        """CPU of the database, where that has processes of its own."""


class Ours:
    """`penstock run` with a webhook; tuned, a change waits for no others, and a request may hold as many as Debezium's."""

    def __init__(self, folder: Path, url: str, is_tuned: bool) -> None:
        self.folder = folder
        tuned = ", batch: {size: 2048, delay: 0ms}" if is_tuned else ""
        self.writer: Writer = SQLiteWriter(shop(folder, f"{{type: webhook, url: '{url}'{tuned}}}"))

    @contextmanager
    def running(self) -> Iterator[Tree]:
        (self.folder / "run.log").unlink(missing_ok=True)
        with penstock_run(self.folder) as tree:
            yield tree

    def is_ready(self) -> bool:
        return has_claimed(self.folder)

    def database_seconds(self) -> float:
        return 0.0


class MicroBatches:
    """The stream of `format("penstock")` and `foreachBatch`, without our engine."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.writer: Writer = SQLiteWriter(shop(folder, "{type: discard}"))
        settings = {"url": url, "pipeline": str(folder / "pipeline.yaml"), "checkpoint": str(folder / "checkpoint")}
        (folder / "settings.json").write_text(json.dumps(settings))

    def running(self) -> Any:
        return _process("bench.peers.microbatch", self.folder)

    def is_ready(self) -> bool:
        return True

    def database_seconds(self) -> float:
        return 0.0


class Debezium:
    """The embedded engine on Postgres."""

    def __init__(self, folder: Path, url: str, server: Postgres, is_tuned: bool) -> None:
        self.folder, self._server = folder, server
        folder.mkdir()
        self.writer = PostgresWriter(server.place)
        settings = {"url": url, "properties": properties(folder, server.port, is_tuned)}
        (folder / "settings.json").write_text(json.dumps(settings))

    def running(self) -> Any:
        return _process("bench.peers.debezium", self.folder)

    def is_ready(self) -> bool:
        slots = self.writer.connection.execute(
            "select 1 from pg_replication_slots where active and confirmed_flush_lsn is not null"
        )
        return slots.fetchone() is not None

    def database_seconds(self) -> float:
        return self._server.cpu_seconds()


@contextmanager
def _process(module: str, folder: Path) -> Iterator[Tree]:
    """A contender that ends when its standard input does."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "JAVA_HOME": str(find_java().home)}
    with (folder / "run.log").open("ab") as log:
        command = [sys.executable, "-m", module, str(folder / "settings.json")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        yield Tree(process)
        assert process.stdin
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
