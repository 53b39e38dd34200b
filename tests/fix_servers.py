"""Servers that all workers of a test run share: the controller starts each when a worker first needs it, and stops all."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from deadline import until

FOLDER = "PENSTOCK_TEST_SERVERS"

Starter = Callable[[Path], AbstractContextManager[Any]]

_menders: dict[str, Callable[[], None]] = {}
"""What brings a server back that tests may break, by the name of its fixture."""


class Depot(Thread):
    """Lives in the controller and looks for requests of workers in a folder; a thread of its own holds each server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="servers", daemon=True)
        self._folder, self._leaving, self._holding = folder, Event(), list[Thread]()

    def run(self) -> None:
        """Start each server that is asked for, once."""
        while not self._leaving.wait(0.05):
            for request in self._folder.glob("*.wanted"):
                starter = pickle.loads(request.read_bytes())
                request.unlink()
                holding = Thread(target=self._hold, args=(request.with_suffix(""), starter), name=request.stem, daemon=True)
                self._holding.append(holding)
                holding.start()

    def close(self) -> None:
        """Stop all servers."""
        self._leaving.set()
        for thread in (self, *self._holding):
            thread.join()

    def _hold(self, place: Path, starter: Starter) -> None:
        """A server ends with the thread that started it, so the thread stays as long as the server is needed."""
        try:
            with starter(place) as server:
                _put(place.with_suffix(".ready"), server_without_process(server))
                self._leaving.wait()
        except Exception:  # noqa: BLE001 - the worker that waits for the server raises it
            _put(place.with_suffix(".ready"), RuntimeError(traceback.format_exc()))


def shared(name: str, starter: Starter) -> Any:
    """The server of this name, for clients only: it cannot be stopped through this object."""
    ready, asked = (Path(os.environ[FOLDER], f"{name}.{what}") for what in ("ready", "asked"))
    try:
        asked.touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        _put(asked.with_suffix(".wanted"), starter)
    until(ready.exists, what=lambda: f"{name} has not started")
    server = pickle.loads(ready.read_bytes())
    if isinstance(server, Exception):
        raise server
    return server


def server_without_process(server: Any) -> Any:
    """A copy that another process can use."""
    copy = object.__new__(type(server))
    vars(copy).update({name: None if isinstance(value, subprocess.Popen) else value for name, value in vars(server).items()})
    return copy


@contextmanager
def mended(fixture: str, mender: Callable[[], None]) -> Iterator[None]:
    """Call this after each test with the fixture: one that fails in the middle leaves the server down for the others."""
    _menders[fixture] = mender
    try:
        yield
    finally:
        del _menders[fixture]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Bring servers back behind the fixtures of the test, also where one of a module has failed to begin."""
    try:
        return (yield)
    finally:
        for fixture in _menders.keys() & set(getattr(item, "fixturenames", ())):
            _menders[fixture]()


def _put(file: Path, content: Any) -> None:
    file.with_suffix(".new").write_bytes(pickle.dumps(content))
    file.with_suffix(".new").rename(file)


def pytest_configure(config: pytest.Config) -> None:
    """Only the controller, which all workers inherit the name of the folder from, has a depot."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="penstock-servers-")
        depot = Depot(Path(os.environ[FOLDER]))
        depot.start()
        config.add_cleanup(lambda: _closed(depot))


def _closed(depot: Depot) -> None:
    depot.close()
    shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)
