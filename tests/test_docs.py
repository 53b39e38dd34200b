"""The docs say all there is, and what they say is so."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer

from penstock import registry
from penstock.cli import LATER, app, main
from penstock.cli.validate import spelled
from penstock.config import LATER_KINDS, LATER_STATES, PipelineFile, known_keys
from penstock.errors import Directive, PenstockError, kinds
from penstock.kind import Kind
from penstock.status import Status

DOCS = Path(__file__).parents[1] / "docs"
PIPELINE_FILE, COMMANDS, ERRORS = ((DOCS / f"{name}.md").read_text() for name in ("pipeline-file", "commands", "errors"))
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+) \|$", re.MULTILINE)


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    for name in group.list_commands(None):
        command, words = group.get_command(None, name), (*before, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, words)
        elif command.help != "Not supported yet.":
            yield words, command


PARTS: dict[str, Any] = {"source": registry.sources(), "sink": registry.sinks()}
ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_helps_with_an_example(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Usage: penstock {' '.join(words)}" in said
    assert re.search(r"Examples?: penstock", said)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_is_documented_with_its_options(words: tuple[str, ...]) -> None:
    (line,) = (line for line in COMMANDS.splitlines() if line.startswith(f"| `penstock {' '.join(words)} "))
    options = {name for parameter in ALL[words].params for name in parameter.opts if name.startswith("--")}
    assert options - {"--help"} <= set(re.findall(r"--[a-z-]+", line))


def test_every_command_of_a_later_version_is_documented_as_such() -> None:
    assert all(f"`{name}`" in COMMANDS for name in LATER)


def test_every_key_of_the_status_is_documented() -> None:
    keys = {field.name for field in dataclasses.fields(Status)} - {"trouble", "marks"}  # not shown, or as the error
    assert all(f"`{key}`" in COMMANDS for key in keys)
    assert all(word in COMMANDS for word in ("leading", "standby", "stopped", "halted"))


@pytest.mark.parametrize("key", dict.fromkeys(map(".".join, known_keys())))
def test_every_key_of_the_pipeline_file_is_documented(key: str) -> None:
    assert f"`{key}`" in PIPELINE_FILE


def defaults(part: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(part):
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        key = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from defaults(value, f"{key}.")
        elif value is dataclasses.MISSING:
            yield key, "required"
        elif value is not None:
            yield key, f"`{spelled(value)}`"


def all_defaults() -> Iterator[tuple[str, str]]:
    yield from ((key, value) for key, value in defaults(PipelineFile, "") if key not in PARTS)
    for part, known in PARTS.items():
        for kind in known.values():
            yield from defaults(resolve_name(kind.settings), f"{part}.")


@pytest.mark.parametrize(("key", "default"), list(all_defaults()))
def test_every_default_is_documented_as_it_is(key: str, default: str) -> None:
    assert {name: value for name, value, _ in ROW.findall(PIPELINE_FILE)}[key] == default


def test_no_key_is_documented_that_does_not_exist() -> None:
    assert {name for name, _, _ in ROW.findall(PIPELINE_FILE)} <= set(map(".".join, known_keys()))


def test_everything_that_a_later_version_will_have_is_documented_as_such() -> None:
    later = PIPELINE_FILE.split("## Not in this version")[1]
    words = [kind for some in LATER_KINDS.values() for kind in some] + [f"{state}://" for state in LATER_STATES]
    assert all(word in later for word in words)


def test_the_example_is_valid(tmp_path: Path) -> None:
    from penstock.config import load

    (tmp_path / "orders.yaml").write_text(PIPELINE_FILE.split("```yaml\n")[1].split("```")[0])
    assert load(tmp_path / "orders.yaml").name == "orders"


DESCRIBED = [*(item for known in PARTS.values() for item in known.items()), *registry.states().items()]


@pytest.mark.parametrize(("name", "kind"), DESCRIBED)
def test_every_kind_has_a_page_that_names_it(name: str, kind: Kind) -> None:
    assert name in (DOCS / kind.page).read_text().lower()


@pytest.mark.parametrize(("name", "kind"), DESCRIBED)
def test_the_extra_of_a_kind_exists(name: str, kind: Kind) -> None:
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert kind.extra is None or kind.extra in extras


@pytest.mark.parametrize("kind", list(kinds()))
def test_every_error_is_documented_with_meaning_and_way_out(kind: type[PenstockError]) -> None:
    (row,) = (line for line in ERRORS.splitlines() if line.startswith(f"| `{kind.code}` "))
    _, _, does, meaning, remedy, _ = map(str.strip, row.split(" | ".strip(), 5))
    assert does == ("stops" if kind.directive is Directive.HALT else "passes")
    assert meaning
    assert remedy


def test_no_error_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `([a-z.-]+)`", ERRORS, re.MULTILINE)) == {kind.code for kind in kinds()}


def test_the_report_of_the_last_campaign_keeps_its_bars() -> None:
    folder = DOCS.parent / "bench" / "reports"
    phases = json.loads((folder / "nemesis.json").read_text())["phases"]
    steps = sum(one["commits"] + sum(one["faults"].values()) for one in phases)
    assert steps >= 10_000
    assert sum(sum(one["kills"].values()) for one in phases) >= 100
    assert [breaches for one in phases for breaches in one["verdicts"].values() if breaches] == []
    assert f"**{steps:,} steps**" in (folder / "nemesis.md").read_text()


def test_the_path_of_a_change_has_35_modules_at_most_and_each_exists_once() -> None:
    path = re.findall(r"^\| \d+ \| `([^`]+)`", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert path[0].endswith("triggers.py")
    assert path[-1].endswith("store.py")
    assert len(set(path)) == len(path) <= 35
    assert [module for module in path if not (DOCS.parent / "src" / "penstock" / module).is_file()] == []
