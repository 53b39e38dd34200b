"""A test that is skipped shows nothing: whatever it lacks is the fault of whoever should have brought it."""

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Count a skipped test as failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped: {call.excinfo.value}"
    return report
