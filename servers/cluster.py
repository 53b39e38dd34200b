"""A real standalone cluster of Spark on loopback ports: a master and a worker, of the jars of the installed pyspark.

with Cluster(folder) as cluster:
    ...  # master: cluster.master, spark.authenticate.secret: cluster.secret
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from penstock.errors import EngineFailed
from penstock.spark.java import find_jars, find_java, module_flags
from servers.ports import free_ports

PATIENCE = 600.0
"""Seconds for a start on a busy machine."""

_ROLES = ("master", "worker")

# It dies with the process that started it, however that ends; executors end when their worker is gone.
_LAUNCH = "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"


class Cluster:
    """Authentication is on, with a secret of the cluster; the files of executors are in `work`."""

    def __init__(self, folder: Path, cores: int = 2) -> None:
        self.folder, self.work, self.secret = folder, folder / "work", secrets.token_hex(16)
        self._cores = cores
        self._ports = dict(zip(("master", "master page", "worker", "worker page"), free_ports(4), strict=True))
        self.processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def master(self) -> str:
        """For `spark.master`."""
        return f"spark://127.0.0.1:{self._ports['master']}"

    @property
    def pages(self) -> list[str]:
        """The addresses of the pages of the master and the worker."""
        return [f"http://127.0.0.1:{self._ports[f'{role} page']}" for role in _ROLES]

    def start(self) -> Self:
        """Start, and wait until the master knows the worker."""
        self._start("master")
        worker = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.work), self.master)
        self._start("worker", *worker)
        self._await(lambda: bool(self.state()["aliveworkers"]))
        return self

    def state(self) -> Any:
        """The master's own account of the cluster."""
        with urllib.request.urlopen(f"{self.pages[0]}/json/", timeout=PATIENCE) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """Kill it; the worker first, which takes its executors with it."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait(PATIENCE)
        self.processes.clear()

    def _start(self, role: str, *arguments: str) -> None:
        ports = ("--host", "127.0.0.1", "--port", str(self._ports[role]), "--webui-port", str(self._ports[f"{role} page"]))
        command = [*_java(), f"org.apache.spark.deploy.{role}.{role.title()}", *ports, *arguments]
        home = str(find_jars()[0].parents[1])  # where a worker looks for the jars of its executors
        jars = {"SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13"}
        environment = os.environ | jars | {"_SPARK_AUTH_SECRET": self.secret}
        with (self.folder / f"{role}.log").open("ab") as log:
            launch = [sys.executable, "-c", _LAUNCH, *command]
            self.processes.append(subprocess.Popen(launch, stdout=log, stderr=log, cwd=self.folder, env=environment))
        self._await(lambda: self._answers(role))

    def _answers(self, role: str) -> bool:
        with suppress(OSError):
            urllib.request.urlopen(self.pages[_ROLES.index(role)], timeout=PATIENCE).close()
            return True
        return False

    def _await(self, is_ready: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_ready():
            if any(process.poll() is not None for process in self.processes) or time.monotonic() > deadline:
                said = "\n".join((self.folder / f"{role}.log").read_text(errors="replace")[-2000:] for role in _ROLES)
                self.stop()
                raise EngineFailed(f"the cluster did not start: {said}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _java() -> list[str]:
    java = find_java()
    small = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.authenticate=true")
    return [str(java.program), "-cp", ":".join(map(str, find_jars())), *module_flags(java.major), *small]
