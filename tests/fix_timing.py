"""A test with the marker `timing` that fails is repeated once, and both outcomes are reported; two failures fail the run."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.runner import runtestprotocol

REPEATED = "repeated"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of the list a second time if its first run fails."""
    if not item.get_closest_marker("timing"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        for report in reports:
            report.outcome = REPEATED if report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show a first failure that was repeated as such."""
    return (REPEATED, "R", "REPEATED") if report.outcome == REPEATED else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the first outcome of each repeated test in full."""
    for report in terminalreporter.stats.get(REPEATED, []):
        terminalreporter.write_sep("_", f"first run of {report.nodeid}, repeated once")
        terminalreporter.write_line(report.longreprtext)
