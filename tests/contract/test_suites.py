"""Each shipped suite refuses an implementation with a fault, and names the broken rule."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import getdoc
from xml.etree import ElementTree

import broken_kinds
import pytest
from broken_kinds import FAULTS

from penstock.testing import contract


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of each test that failed over a broken kind, by the name of its class."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "pytest.ini").write_text("[pytest]\n")
    tests = [f"{broken_kinds.__file__}::Test{kind.__name__}::{test}" for kind, (_, test) in FAULTS.items()]
    words = ["-q", "--noconftest", "-p", "no:cacheprovider", "-c", "pytest.ini", f"--junitxml={folder / 'report.xml'}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *tests], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ElementTree.parse(folder / "report.xml").iter("testcase")
    return {case.attrib["classname"].rpartition(".")[2]: str(failed.text) for case in cases for failed in case.iter("failure")}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_fails_its_test_with_the_rule_that_it_breaks(kind: type, failures: dict[str, str]) -> None:
    suite, test = FAULTS[kind]
    assert (
        f"The implementation breaks this rule of the contract: {getdoc(getattr(suite, test))}" in failures[f"Test{kind.__name__}"]
    )


def test_every_suite_refuses_a_fault() -> None:
    suites = {getattr(contract, name) for name in contract.__all__ if name.endswith("Contract")}
    assert suites == {suite for suite, _ in FAULTS.values()}


@pytest.mark.parametrize("name", [name for name in contract.__all__ if name.endswith("Contract")])
def test_every_test_of_a_suite_states_its_rule(name: str) -> None:
    suite = getattr(contract, name)
    assert [test for test in dir(suite) if test.startswith("test_") and not getdoc(getattr(suite, test))] == []
