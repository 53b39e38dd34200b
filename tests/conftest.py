"""Settings of a test run; fixtures are in the plugins. See tests/README.md."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

SITE = str(Path(__file__).parent / "site")
sys.path.insert(0, SITE)

import alteration  # noqa: E402
import starts  # noqa: E402

# A shell starts background jobs with Ctrl-C ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compile quickly rather than well: dozens of JVMs live for seconds, and starting them is most of what the tests take.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Every process that a test starts runs tests/site/sitecustomize.py first; this one has started already.
if SITE not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SITE, os.environ.get("PYTHONPATH"))))
alteration.of(starts.ALTERED)

# How long an example takes says more about the machine than about the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = [
    "fix_servers",  # imported by some of the others
    "fix_budget",
    "fix_kafka",
    "fix_mariadb",
    "fix_postgres",
    "fix_rig",
    "fix_skips",
    "fix_spark",
    "fix_timing",
]

GROUPS = {
    "spark": "spark",
    "breakable_broker": "breakable",
    "breakable_postgres": "breakable",
    "interrupted": "interrupted",
    "halted": "halted",
}
"""Tests with one of these fixtures run in one worker: they share a Spark session, a story, or the servers that they break."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file in one worker; begin with the files that start processes: short ones fill the gaps at the end."""
    for item in items:
        shared = [group for fixture, group in GROUPS.items() if fixture in getattr(item, "fixturenames", ())]
        item.add_marker(pytest.mark.xdist_group((shared or [item.nodeid.partition("::")[0]])[0]))
    items.sort(key=lambda item: not {"nemesis", "promises", "demo"} & {*item.path.parts})
