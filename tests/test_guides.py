"""The guides for authors of sources and sinks, followed from an empty folder to a package that passes the contract suites."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from wheels import install

DOCS = Path(__file__).parents[1] / "docs"
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL, TEST = "pip install -e '.[test]'", "python -m pytest"
BY_SPARK = re.compile(r"penstock (run|status)|cat ")
"""Commands that start Spark, or show its results, are not run here."""


class Guide:
    """A page, and the folder in which it is followed."""

    def __init__(self, page: str, folder: Path) -> None:
        self.text = (DOCS / f"{page}.md").read_text()
        self.folder, self.site = folder / "work", folder / "site"
        for path, text in self.files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

    @property
    def files(self) -> Mapping[str, str]:
        return dict(FILE.findall(self.text))

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix("$ ") for block in CONSOLE.findall(self.text) for line in block.splitlines()]

    @property
    def package(self) -> str:
        return next(path.split("/")[1] for path in self.files if path.startswith("src/"))

    def install(self) -> None:
        """As the build tool does, which may not be installed."""
        project = tomllib.loads(self.files["pyproject.toml"])["project"]
        code = {path.removeprefix("src/"): text for path, text in self.files.items() if path.startswith("src/")}
        install(self.site, self.package, code, project["entry-points"])

    def run(self, command: str, *first: Path) -> subprocess.CompletedProcess[str]:
        """A command line of the page; modules in `first` come before those that are installed."""
        path = os.pathsep.join([*map(str, first), str(self.site), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        shell = ["/bin/sh", "-c", command]
        return subprocess.run(shell, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Guide]:
    """The guides of this module, each with its package installed."""
    made = {page: Guide(page, tmp_path_factory.mktemp(page)) for page in ("new-source", "new-sink")}
    for guide in made.values():
        guide.install()
    return made


@pytest.mark.parametrize("page", ["new-source", "new-sink"])
def test_a_guide_leads_from_an_empty_folder_to_a_package_that_passes_the_suites(page: str, guides: dict[str, Guide]) -> None:
    guide = guides[page]
    assert guide.commands[:2] == [INSTALL, TEST]
    for command in guide.commands[1:]:
        if not BY_SPARK.match(command):
            ended = guide.run(command)
            assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"


class Fault(NamedTuple):
    """A line of a package and another in its place, and the test that fails."""

    page: str
    file: str
    line: str
    broken: str
    test: str
    breaks_a_rule: bool = True


FAULTS = {
    "offset": Fault("new-source", "source.py", "some[-1][0]", "some[0][0]", "no_cursor_lies_before"),
    "fsync": Fault("new-sink", "file.py", "os.fsync(file.fileno())", "", "on_the_disk", breaks_a_rule=False),
    "outcome": Fault("new-sink", "file.py", "return Deferred(", "return ACCEPTED or (", "that_fail"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_tests_of_a_guide_fail_where_its_package_is_broken(name: str, guides: dict[str, Guide], tmp_path: Path) -> None:
    fault = FAULTS[name]
    guide = guides[fault.page]
    file = shutil.copytree(guide.site / guide.package, tmp_path / guide.package) / fault.file
    assert file.read_text().count(fault.line) == 1
    file.write_text(file.read_text().replace(fault.line, fault.broken))
    ended = guide.run(f"{TEST} -k {fault.test}", tmp_path)
    assert (ended.returncode, "1 failed" in ended.stdout) == (1, True), ended.stdout + ended.stderr
    [rule] = re.findall(r"^    E   (The implementation breaks .*)$", guide.text, re.MULTILINE)
    assert (rule in ended.stdout) == fault.breaks_a_rule
