"""References of a pipeline file: which of them a command needs, and that the content of a file is shown nowhere."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.checkup.examination import examine
from penstock.cli import main
from penstock.config import load
from penstock.coordinator import Tally
from penstock.cursor import Watermark
from penstock.errors import ConfigInvalid
from penstock.finding import Severity
from penstock.sink import Assignment
from penstock.sources.sqlite.source import LANE

SECRET = "r00t:x:0:0:Super User"
CONTENT = f"{SECRET}\nbin:x:1:1"

WEBHOOK = {"type": "webhook", "url": "https://h/", "headers": {"Authorization": "Bearer ${NO_TOKEN}", "X": "${file:gone.txt}"}}
KAFKA = {"type": "kafka", "config": {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "${NO_TOKEN}"}}
UNSET = {
    "headers": {"sink": WEBHOOK},
    "url": {"sink": {"type": "webhook", "url": "${NO_URL}/hook"}},
    "number": {"sink": {"type": "webhook", "url": "https://h/", "batch": {"size": "${NO_SIZE}"}}},
    "signing": {"sink": {"type": "webhook", "url": "https://h/", "signing": {"secret": ["${file:gone}"]}}},
    "type": {"sink": {"type": "${NO_TYPE}", "url": "https://h/"}},
    "kafka": {"sink": KAFKA},
    "transform": {"transform": {"function": "${NO_FUNCTION}", "where": "${NO_WHERE}"}},
    "spark": {"spark": {"master": "${NO_MASTER}", "config": {"a": "${NO_CONFIG}"}}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "1000")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table orders(id integer primary key)")
    assert main(["capture", "enable", str(tmp_path / "shop.db")]) == 0
    (tmp_path / "content.txt").write_text(CONTENT + "\n")
    (tmp_path / "short.txt").write_text("(?")
    return tmp_path


def write(folder: Path, **parts: Any) -> Path:
    """A pipeline file with these parts."""
    least = {"name": "orders", "source": {"type": "sqlite", "database": "shop.db"}, "sink": {"type": "discard"}}
    (folder / "p.yaml").write_text(yaml.safe_dump({**least, **parts}))
    return folder / "p.yaml"


def known(file: Path) -> None:
    """The pipeline has delivered up to position 0."""
    pipeline = load(file)
    with closing(pipeline.state.candidate("orders", "test")) as candidate:
        term = candidate.campaign()
        assert term
        start = Watermark(pipeline.source.begin(LANE, "beginning"), 0)
        pipeline.state.place(term, {LANE: start})
        with pipeline.state.claim(term, LANE, 1) as claim:
            claim.advance(start, Tally())
        candidate.resign()


@pytest.mark.parametrize("parts", UNSET.values(), ids=UNSET)
def test_commands_that_deliver_nothing_need_no_secrets_of_the_sink(parts: Mapping[str, Any], folder: Path, capsys: Any) -> None:
    known(write(folder))
    file = str(write(folder, **parts))
    for words in (["status", file], ["status", "--json", file], ["dead", "list", file]):
        assert main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "stopped" in said
    for words in (["validate", file], ["run", file], ["dead", "redrive", file, "all"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("config.invalid")
        assert "refers to ${" in said
    assert [one.verdict for one in examine([Path(file)])] == [Severity.FAILED]
    is_kept = parts in (UNSET["kafka"], UNSET["type"])
    for words in (["rewind", file, "--to", "now", "--yes", "--skip"], ["forget", file, "--yes"]):
        capsys.readouterr()
        assert main(words) == (2 if is_kept else 0)
        said = capsys.readouterr().err
        assert ("refers to ${NO_T" in said) == is_kept
    assert (main(["forget", str(write(folder)), "--yes"]) == 0) == is_kept, "where it was refused, nothing was changed"


def test_what_such_a_command_uses_must_be_there(folder: Path, capsys: Any) -> None:
    for parts in (
        {"name": "${NO_NAME}"},
        {"state": "${NO_STATE}"},
        {"source": {"type": "sqlite", "database": "${file:gone}"}},
        {"sink": {"type": "webhook", "url": "${NO_URL:-x}"}},
        {"sink": "${NO_SINK}"},
        {"sink": {"type": "hook", "url": "${NO_URL}"}},
    ):
        assert main(["status", str(write(folder, **parts))]) == 2, parts
        said = capsys.readouterr().err
        assert "refers to ${" in said or "hook is unknown" in said or "sink" in said


def test_a_sink_that_was_not_read_complains_when_it_is_used(folder: Path) -> None:
    for sink in (WEBHOOK, KAFKA):
        found: Any = load(write(folder, sink=sink), delivers=False).sink
        with pytest.raises(ConfigInvalid, match=r"refers to \$\{NO_TOKEN\}, but the environment variable NO_TOKEN is not set"):
            found.open(Assignment("orders", LANE, 1, 1, "cafe", None, print))


INVALID: dict[str, dict[str, Any]] = {
    "name": {"name": "${file:content.txt}"},
    "part of a name": {"name": "a ${file:content.txt}"},
    "mode": {"mode": "${file:content.txt}"},
    "term": {"term": "${file:content.txt}"},
    "tables": {"source": {"type": "sqlite", "database": "shop.db", "tables": "(${file:content.txt}"}},
    "short": {"source": {"type": "sqlite", "database": "shop.db", "tables": "${file:short.txt}"}},
    "start": {"source": {"type": "sqlite", "database": "shop.db", "start": "${file:content.txt}"}},
    "reader": {"source": {"type": "outbox", "database": "postgresql://h/d", "reader": "${file:content.txt}"}},
    "kind": {"source": {"type": "${file:content.txt}"}},
    "url": {"sink": {"type": "webhook", "url": "${file:content.txt}"}},
    "port": {"sink": {"type": "webhook", "url": "http://h:${file:content.txt}/"}},
    "format": {"sink": {"type": "webhook", "url": "http://h/", "format": "${file:content.txt}"}},
    "size": {"sink": {"type": "webhook", "url": "http://h/", "batch": {"size": "${file:content.txt}"}}},
    "function": {"transform": {"function": "${file:content.txt}"}},
    "state": {"state": "${file:content.txt}://x"},
    "kafka": {"state": "kafka://h:1/${file:content.txt}"},
    "home": {"state": "~${file:content.txt}/x"},
}


@pytest.mark.parametrize("parts", INVALID.values(), ids=INVALID)
def test_an_error_shows_the_reference_and_not_the_content(parts: dict[str, Any], folder: Path, capsys: Any) -> None:
    file = write(folder, **parts)
    for command in ("validate", "status"):
        assert main([command, str(file)]) == 2
    said = capsys.readouterr()
    told = said.out + said.err + "".join(f"{one.said} {one.remedy}" for one in examine([file]))
    assert "r00t" not in told
    assert "Super" not in told
    assert "(?" not in told
    assert "config.invalid" in said.err


def test_an_error_names_the_variable_and_not_its_value(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN_NAME", "a name with s3cret")
    assert main(["validate", str(write(folder, name="${GIVEN_NAME}"))]) == 2
    said = capsys.readouterr().err
    assert "'${GIVEN_NAME}' must be 1 to 64 letters" in said
    assert "s3cret" not in said


def test_an_error_of_another_key_stays_as_it_is(folder: Path, capsys: Any) -> None:
    assert main(["validate", str(write(folder, name="a b", sink={"type": "webhook", "url": "https://h/${file:short.txt}"}))]) == 2
    assert "'a b' must be 1 to 64 letters" in capsys.readouterr().err


def test_validate_shows_references_to_files(folder: Path, capsys: Any) -> None:
    (folder / "url.txt").write_text("https://hidden.example.org/x")
    (folder / "tables.txt").write_text("hidden|items")
    file = write(
        folder,
        source={"type": "sqlite", "database": "shop.db", "tables": "${file:tables.txt}"},
        sink={"type": "webhook", "url": "${file:url.txt}", "headers": {"X": "${file:tables.txt}"}},
        spark={"config": {"spark.a": "${file:tables.txt}", "spark.b": "plain"}},
        transform={"select": {"a": "${file:tables.txt}"}},
        state="${file:tables.txt}",
    )
    assert main(["validate", str(file)]) == 0
    told = capsys.readouterr().out
    assert main(["validate", "--json", str(file)]) == 0
    listed = capsys.readouterr().out
    assert "hidden" not in told + listed
    found = {one["key"]: one["value"] for one in json.loads(listed)["settings"]}
    assert found["source.tables"] == "${file:tables.txt}"
    assert found["sink.url"] == "${file:url.txt}"
    assert found["state"] == "${file:tables.txt}"
    assert json.loads(found["spark.config"]) == {"spark.a": "${file:tables.txt}", "spark.b": "plain"}
    assert json.loads(found["sink.headers"]) == {"X": "***"}


def test_a_file_of_goharvest_shows_references_too(folder: Path, capsys: Any) -> None:
    (folder / "reaper.yaml").write_text("logging: {level: '${file:content.txt}'}\n")
    assert main(["reap", "--print-pipeline", "-f", str(folder / "reaper.yaml")]) == 2
    said = capsys.readouterr().err
    assert "r00t" not in said.lower()
    assert "logging.level: ${file:content.txt} is unknown" in said
