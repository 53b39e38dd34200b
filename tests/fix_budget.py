"""The cost of a test run: seconds, CPU seconds, and starts of Spark; more starts than the budget allows fail the run."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from starts import FILE

MOST_STARTS = 60


def pytest_configure(config: pytest.Config) -> None:
    """Only the controller, which all workers inherit the name of the file from, has the count."""
    if FILE not in os.environ:
        number, os.environ[FILE] = tempfile.mkstemp(prefix="penstock-starts-")
        os.close(number)
        config.pluginmanager.register(_Count(Path(os.environ[FILE])), "count of Spark's starts")


class _Count:
    def __init__(self, file: Path) -> None:
        self._file, self._starts = file, list[str]()
        self._began, self._cpu = time.monotonic(), cpu_seconds()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        self._starts = self._file.read_text().splitlines()
        if len(self._starts) > MOST_STARTS and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        cost = f"{time.monotonic() - self._began:.0f} s, {cpu_seconds() - self._cpu:.0f} CPU seconds of this machine"
        said = f"{cost}, {len(self._starts)} starts of Spark, of which {MOST_STARTS} are allowed"
        terminalreporter.write_line(said, red=len(self._starts) > MOST_STARTS)
        if len(self._starts) > MOST_STARTS or terminalreporter.verbosity > 0:
            for file, count in Counter(one.partition("::")[0] for one in self._starts).most_common():
                terminalreporter.write_line(f"  {count:3} {file}")

    def pytest_unconfigure(self) -> None:
        self._file.unlink(missing_ok=True)
        os.environ.pop(FILE, None)


def cpu_seconds() -> float:
    """The time that all processes of the machine have used: of those that were orphaned no parent knows it."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
