"""Nothing grows beyond what can be read at a sitting, and nothing is named after nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "src" / "penstock", ROOT / "servers")
MODULE, FUNCTION, PARAMETERS = 400, 50, 6
OPTIONS = 7
"""Of a command: each of them is a parameter of its function."""
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "core", "manager", "service", "types", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def excesses(package: Path) -> list[str]:
    """Everything that is too large or badly named."""
    return [f"{file.relative_to(package)}{said}" for file in sorted(package.rglob("*.py")) for said in of_module(file)]


def of_module(file: Path) -> Iterator[str]:
    text = file.read_text()
    if (lines := len(text.splitlines())) > MODULE:
        yield f" has {lines} lines"
    if FORBIDDEN & {file.stem, file.parent.name}:
        yield " is a name for everything"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            yield from of_function(node, OPTIONS if file.parent.name == "cli" else PARAMETERS)


def of_function(node: Function, allowed: int) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > FUNCTION:
        yield f": {node.name} has {lines} lines"
    parameters = [
        one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs] if one.arg not in ("self", "cls")
    ]
    if len(parameters) > allowed:
        yield f": {node.name} has {len(parameters)} parameters"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_modules_and_functions_stay_small_and_well_named(folder: Path) -> None:
    assert excesses(folder) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("long.py", "x = 1\n" * (MODULE + 1)),
        ("tall.py", "def tall():\n" + "    x = 1\n" * FUNCTION),
        ("wide.py", "def wide(self, a, b, c, *, d, e, f, g): ...\n"),
        ("utils.py", ""),
        ("core/thing.py", ""),
    ],
)
def test_an_excess_is_found(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert len(excesses(tmp_path)) == 1
