"""Which tests run in one worker: those of a file, and those that share a Spark session, a story, or servers that they break.

The workers note the group of each test in the folder that all of them share, and the scheduler reads it there: pytest-xdist would
append the group to the id of a test, which pytest has allowed only up to 9.1.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from fix_servers import FOLDER

GROUPS = {
    "spark": "spark",
    "breakable_broker": "breakable",
    "breakable_postgres": "breakable",
    "interrupted": "interrupted",
    "halted": "halted",
}
"""Tests with one of these fixtures are a group."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the groups; begin with the files that start processes: short ones fill the gaps at the end."""
    items.sort(key=lambda item: not {"nemesis", "promises", "demo"} & {*item.path.parts})
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        new = _noted().with_suffix(f".{worker}")
        new.write_text(json.dumps({item.nodeid: group_of(item) for item in items}))
        new.rename(_noted())


def group_of(item: pytest.Item) -> str:
    """The group that one of its fixtures says, or else its file."""
    shared = [group for fixture, group in GROUPS.items() if fixture in getattr(item, "fixturenames", ())]
    return (shared or [item.nodeid.partition("::")[0]])[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With --dist loadgroup, send each group to one worker."""
    return _Grouped(config, log) if config.getoption("dist") == "loadgroup" else None


class _Grouped(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _groups()[nodeid]


@cache
def _groups() -> dict[str, str]:
    found: dict[str, str] = json.loads(_noted().read_text())
    return found


def _noted() -> Path:
    return Path(os.environ[FOLDER], "groups.json")
