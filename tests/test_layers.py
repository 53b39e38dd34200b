"""Imports point one way, and only `spark/` knows pyspark, only the contract suites pytest."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "penstock"

LAYERS = (
    ("cli", "__main__"),
    ("demo",),
    ("testing",),
    ("checkup", "metrics", "harvest"),
    ("running",),
    ("spark",),
    ("config",),
    ("sources", "sinks", "coordinators"),
    ("delivery",),
    ("formats", "transform"),
    ("message",),
)
"""From the top: a layer imports those below it. What is not named is a noun and lies at the bottom."""

KINDS = ("sources", "sinks", "coordinators")
SHARED = (
    "coordinators.candidate",
    "coordinators.claim",
    "coordinators.letter_table",
    "coordinators.letters",
    "coordinators.locks",
    "coordinators.holder",
    "coordinators.row_claim",
    "coordinators.row_coordinator",
    "coordinators.tables",
    "sources.one_lane",
    "sources.retain",
)
"""What the implementations of one contract share. Otherwise they do not know each other."""

NEUTRAL = ("checkup", "cli", "config", "harvest", "metrics", "running")
"""These reach kinds of sources, sinks and state stores only by their descriptors."""

ALSO_OF_NOUNS = {"pyarrow": None, "pydantic_core": ("settings",), "orjson": ("rows", "text.raw")}
"""What nouns import beside the standard library, and which of them alone may."""

SUITES = "testing.contract"
"""The suites, which only tests import: their extra installs pytest."""

ALSO_HERE = ("bench", "servers", "tests")
"""Folders of this repository that an installed package does not have."""


def breaches(package: Path) -> list[str]:
    """Every import that points the wrong way."""
    return [said for module, imported in imports(package) for said in judged(module, imported)]


def imports(package: Path) -> Iterator[tuple[str, str]]:
    """Module and imported module, both without the package's name where they are inside."""
    for file in sorted(package.rglob("*.py")):
        module = ".".join(file.relative_to(package).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            for name in names(node):
                yield module, "." + name.removeprefix("penstock").removeprefix(".") if name.startswith("penstock") else name


def names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where they point"
        inside = node.module in ("penstock", "penstock.testing", *(f"penstock.{kind}" for kind in KINDS))
        return [f"{node.module}.{alias.name}" if inside else str(node.module) for alias in node.names]
    return []


def judged(module: str, imported: str) -> Iterator[str]:
    if not imported.startswith("."):
        yield from judged_outside(module, imported.partition(".")[0])
        return
    target = imported[1:]
    if module == "__init__" or not target:
        return
    if depth(target) < depth(module):
        yield f"{module} imports {target}, which lies above it"
    if target.startswith(SUITES) and not module.startswith(SUITES):
        yield f"{module} imports {target}, which needs pytest"
    mine, other = implementation(module), implementation(target)
    if other and module.partition(".")[0] in NEUTRAL:
        yield f"{module} imports {target}: it uses descriptors of kinds only"
    if mine and other and mine != other and other not in SHARED:
        yield f"{module} imports {target}: implementations do not know each other"


def judged_outside(module: str, package: str) -> Iterator[str]:
    nouns = ALSO_OF_NOUNS.get(package, ())
    is_allowed = package in sys.stdlib_module_names or nouns is None or module in nouns
    if package in ("pyspark", "py4j") and not module.startswith("spark."):
        yield f"{module} imports {package}"
    elif package == "pytest" and not module.startswith(f"{SUITES}."):
        yield f"{module} imports {package}, which only its extra installs"
    elif depth(module) == len(LAYERS) and not is_allowed:
        yield f"{module} is a noun and imports {package}"
    if package in ALSO_HERE:
        yield f"{module} imports {package}, which is not in the wheel"


def depth(module: str) -> int:
    first = module.partition(".")[0]
    return next((i for i, layer in enumerate(LAYERS) if first in layer), len(LAYERS))


def implementation(module: str) -> str | None:
    kind, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return f"{kind}.{name}" if kind in KINDS and name and name != "__init__" and name.islower() else None


def test_imports_point_one_way() -> None:
    assert breaches(PACKAGE) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("change", "from penstock.running import run"),
        ("source", "from penstock import config"),
        ("sink", "import urllib3"),
        ("retry", "from pydantic_core import core_schema"),
        ("sinks/webhook/connection", "from penstock.spark.rows import Mark"),
        ("sinks/webhook/connection", "from penstock.sources.sqlite import log"),
        ("delivery/driver", "from penstock.sinks.webhook.connection import Connection"),
        ("sources/sqlite/log", "from penstock.sources.synthetic import LANE"),
        ("status", "import pyspark"),
        ("testing/receiver", "from servers.ports import free_port"),
        ("cli/run", "from pyspark.sql import SparkSession"),
        ("cli/outbox", "def late():\n    from penstock.sources.outbox import schema"),
        ("cli/forget", "from penstock.sources.retain import Registration"),
        ("checkup/machine", "from penstock.coordinators.sqlite import store"),
        ("spark/query", "from penstock.testing.receiver import Receiver"),
        ("testing/receiver", "import pytest"),
        ("testing/receiver", "from penstock.testing.contract import SinkContract"),
        ("demo/run", "from penstock.testing import contract"),
        ("cli/run", "from penstock.testing.contract.suite import Contract"),
        ("running", "def late():\n    from penstock.demo import shop"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(module: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / f"{module}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"import json\nfrom penstock.errors import PenstockError\n{line}\n")
    assert len(breaches(tmp_path)) == 1


ACYCLIC = ("delivery", "sinks")


def cycles(package: Path, folders: Iterable[str]) -> set[str]:
    """The modules of these folders that import themselves by way of others, also inside of functions and for type checkers."""
    files = [file for folder in folders for file in (package / folder).rglob("*.py")]
    edges = {".".join(file.relative_to(package).with_suffix("").parts): set(targets(file, package)) for file in files}
    reached = {module: set(found) for module, found in edges.items()}
    while grown := [(one, more) for one, some in reached.items() if (more := _beyond(some, edges) - some)]:
        for one, more in grown:
            reached[one] |= more
    return {module for module, found in reached.items() if module in found}


def targets(file: Path, package: Path) -> Iterator[str]:
    """What a module imports of ours; a name that is a module counts as one."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("penstock."):
            place = str(node.module).removeprefix("penstock.")
            folder = package.joinpath(*place.split("."))
            yield from (f"{place}.{one.name}" if (folder / f"{one.name}.py").exists() else place for one in node.names)


def _beyond(some: set[str], edges: dict[str, set[str]]) -> set[str]:
    return set().union(*(edges.get(one, set()) for one in some))


def test_sinks_and_the_driver_import_in_no_circle() -> None:
    assert cycles(PACKAGE, ACYCLIC) == set()


def test_a_circle_of_imports_is_found(tmp_path: Path) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "one.py").write_text("from penstock.sinks.two import two\n")
    (tmp_path / "sinks" / "two.py").write_text("def two():\n    from penstock.sinks.one import one\n")
    assert cycles(tmp_path, ["sinks"]) == {"sinks.one", "sinks.two"}
