"""The names that programs outside rely on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

import penstock
from penstock import registry
from penstock.cli import COMMANDS

PACKAGE = Path(penstock.__file__).parent


def test_public_names_are_sorted_and_complete() -> None:
    assert sorted(penstock.__all__) == penstock.__all__
    assert set(penstock.__all__) == set(penstock._PLACES) >= {"load", "parse", "run", "Change", "Pipeline", "PenstockError"}


def test_type_checkers_see_the_same_names_at_the_same_places() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [seen] = [node for node in tree.body if isinstance(node, ast.If)]
    found = {alias.name: node.module for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert found == penstock._PLACES


@pytest.mark.parametrize("name", penstock.__all__)
def test_a_public_name_is_what_its_module_has(name: str) -> None:
    assert getattr(penstock, name) is resolve_name(f"{penstock._PLACES[name]}:{name}")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        penstock.nonsense  # noqa: B018


KINDS = [*registry.sources().values(), *registry.sinks().values(), *registry.states().values()]


LAYOUTS = [place for kind in registry.sources().values() for place in kind.layouts.values()]


@pytest.mark.parametrize("place", [*COMMANDS.values(), *LAYOUTS, *(place for kind in KINDS for place in kind.classes())])
def test_what_a_registry_names_is_there(place: str) -> None:
    assert resolve_name(place)


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import sys, penstock; print(*sorted({'pyspark', 'pyarrow', 'pydantic', 'yaml', 'rich', 'typer'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
