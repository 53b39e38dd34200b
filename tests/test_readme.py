"""What the README and the guides show exists: commands with their options, links, files, output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from penstock.cli import app
from penstock.config import parse

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "src").rglob("DESIGN.md")),
]
GUIDES = [ROOT / "README.md", ROOT / "docs" / "tour.md"]
TOUR = (ROOT / "docs" / "tour.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOME = "/home/you/tour"


def blocks(text: str, *kinds: str) -> Iterator[str]:
    return (found[2] for found in BLOCK.finditer(text) if found[1] in kinds)


def shown(text: str) -> Iterator[tuple[str, str]]:
    """Commands of console blocks, each with the output below it."""
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command.partition("    #")[0].strip(), output


ALL = sorted({command for page in GUIDES for command, _ in shown(page.read_text())})


def options_of(words: list[str]) -> tuple[list[str], set[str]]:
    """What is left of a command line behind the command's name, and the options that it may have."""
    found: Any = typer.main.get_command(app)
    while hasattr(found, "list_commands"):
        found, words = found.get_command(None, words[0]), words[1:]
        assert found is not None
    return words, {name for parameter in found.params for name in parameter.opts}


@pytest.mark.parametrize("command", [line for line in ALL if line.startswith("penstock ")])
def test_a_shown_command_exists_with_those_options(command: str) -> None:
    rest, known = options_of(shlex.split(command)[1:])
    assert {word for word in rest if word.startswith("-")} <= known


@pytest.mark.parametrize("command", [line for line in ALL if line.startswith("make")])
def test_a_shown_target_of_make_exists(command: str) -> None:
    assert re.search(rf"^{command.split()[1]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [line for line in ALL if line.startswith("python -m ")])
def test_a_shown_module_runs_with_those_options(command: str) -> None:
    _, _, module, *rest = shlex.split(command)
    helped = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"{word} " in helped for word in rest if word.startswith("-"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            path, _, heading = target.partition("#")
            file = (page.parent / path) if path else page
            assert file.exists(), target
            assert not heading or heading in headings(file), target


def headings(file: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", BLOCK.sub("", file.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_every_test_that_a_page_names_exists() -> None:
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src/penstock/testing/contract").glob("*.py")]
    tests = "".join(file.read_text() for file in files)
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_pipeline_files_that_are_shown_are_valid(page: Path, tmp_path: Path) -> None:
    rest = {"name": "x", "source": {"type": "sqlite", "database": "x.db"}, "sink": {"type": "webhook", "url": "http://localhost/"}}
    for block in blocks(page.read_text(), "yaml"):
        assert parse({**rest, **yaml.safe_load(block)}, tmp_path)


def test_the_tour_goes_as_it_says_up_to_the_first_run(tmp_path: Path) -> None:
    """In an empty directory, with only this program on the PATH."""
    for name, text in re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", TOUR, re.DOTALL):
        (tmp_path / name).write_text(text)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "COLUMNS": "300"}
    for command, output in shown(TOUR.partition("\n## 4.")[0]):
        ended = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert settled(ended.stdout, tmp_path) == settled(output, tmp_path)


def settled(output: str, folder: Path) -> list[list[str]]:
    """Lines as words, without what differs from run to run."""
    text = output.replace(os.path.realpath(folder), HOME).replace(str(folder), HOME)
    return [line.split() for line in re.sub(r"\d+\.\d s", "N s", text).splitlines() if line.strip()]
