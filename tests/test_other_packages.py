"""Kinds of sources and sinks that come from another package: it is installed by pip, and found by its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from wheels import install

SINK = """
from penstock.finding import ok
from penstock.kind import FileKey, SinkKind
from penstock.settings import settings
from penstock.sink import Sink

KIND = SinkKind(
    settings="acme_files:FolderSink",
    page="https://acme.example/folder",
    files=[FileKey(("folder",))],
    checks="acme_files:checks",
)

@settings
class FolderSink(Sink):
    folder: str
    suffix: str = ".jsonl"

    @property
    def warnings(self):
        return [] if self.suffix.startswith(".") else ["suffix has no dot"]

def checks(pipeline, *, probes):
    return {"folder": lambda: [ok("folder", f"{pipeline.sink.folder}, probes {probes}")]}
"""

SOURCE = """
from penstock.kind import FileKey, SourceKind
from penstock.sources.synthetic import SyntheticSource
from penstock.settings import settings

KIND = SourceKind(settings="acme_ticks:TickSource", page="https://acme.example/ticks", files=[FileKey(("clock",))])

@settings
class TickSource(SyntheticSource):
    clock: str
"""

FILE = {"name": "ticks", "source": {"type": "ticks", "clock": "clock.txt"}, "sink": {"type": "folder", "folder": "out"}}


class Site:
    """A folder with installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(FILE))

    def install(self, name: str, code: str, points: Mapping[str, Mapping[str, str]]) -> None:
        """Install a package of one module."""
        install(self.site, name, {f"{name}.py": code}, points)

    def penstock(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program with these packages."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.site), os.environ.get("PYTHONPATH", "")])}
        program = [sys.executable, "-m", "penstock", *words]
        return subprocess.run(program, capture_output=True, text=True, check=False, cwd=self.folder, env=environment)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.install("acme_files", SINK, {"penstock.sinks": {"folder": "acme_files:KIND"}})
    made.install("acme_ticks", SOURCE, {"penstock.sources": {"ticks": "acme_ticks:KIND"}})
    return made


def test_kinds_of_other_packages_are_validated_located_and_checked(site: Site) -> None:
    valid = site.penstock("validate", "pipeline.yaml", "--json")
    assert valid.returncode == 0, valid.stderr
    settings = {one["key"]: one["value"] for one in json.loads(valid.stdout)["settings"]}
    assert {key: settings[key] for key in ("source.type", "source.clock", "sink.type", "sink.folder", "sink.suffix")} == {
        "source.type": "ticks",
        "source.clock": str(site.folder / "clock.txt"),
        "sink.type": "folder",
        "sink.folder": str(site.folder / "out"),
        "sink.suffix": ".jsonl",
    }
    checked = json.loads(site.penstock("doctor", "pipeline.yaml", "--json", "--probe").stdout)["checks"]
    assert [one["finding"] for one in checked if one["check"] == "folder"] == [f"{site.folder / 'out'}, probes True"]


def test_a_wrong_key_of_another_package_has_the_message_of_any_other(site: Site) -> None:
    (site.folder / "pipeline.yaml").write_text(yaml.safe_dump({**FILE, "sink": {"type": "folder", "foldr": "out"}}))
    wrong = site.penstock("validate", "pipeline.yaml")
    assert (wrong.returncode, "did you mean folder?" in " ".join(wrong.stderr.split())) == (2, True)


def test_a_type_that_no_package_has_is_listed_with_those_of_all_packages(site: Site) -> None:
    (site.folder / "pipeline.yaml").write_text(yaml.safe_dump({**FILE, "sink": {"type": "x"}}))
    said = " ".join(site.penstock("validate", "pipeline.yaml").stderr.split())
    assert "allowed is discard, kafka, webhook, folder" in said


@pytest.mark.parametrize(
    ("name", "code", "point", "said"),
    [
        ("acme_more", SINK, {"folder": "acme_more:KIND"}, "acme_files and the package acme_more both have a kind folder"),
        ("acme_more", SINK, {"webhook": "acme_more:KIND"}, "the package acme_more has a kind webhook, and so does Penstock"),
        ("acme_more", "import no_such", {"more": "acme_more:KIND"}, "acme_more cannot be used: acme_more:KIND: No module named"),
        ("acme_more", "KIND = 1", {"more": "acme_more:KIND"}, "the package acme_more: acme_more:KIND is not a SinkKind"),
    ],
    ids=["a name twice", "a name of ours", "no module", "no descriptor"],
)
def test_a_package_that_cannot_be_used_is_named(site: Site, name: str, code: str, point: Mapping[str, str], said: str) -> None:
    site.install(name, code, {"penstock.sinks": point})
    ended = site.penstock("validate", "pipeline.yaml")
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())
