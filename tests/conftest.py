"""Plugins only; see tests/README.md."""

import os
import signal

import pytest
from hypothesis import settings

# A shell starts background jobs with Ctrl-C ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compile quickly rather than well: dozens of JVMs live for seconds, and starting them is most of what the tests take.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long an example takes says more about the machine than about the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = ["fix_kafka", "fix_mariadb", "fix_postgres", "fix_rig", "fix_skips", "fix_spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests start processes: short ones fill the gaps at the end, long ones would make them."""
    items.sort(key=lambda item: not {"nemesis", "promises", "demo"} & {*item.path.parts})
