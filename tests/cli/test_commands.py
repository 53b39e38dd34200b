"""The commands init, validate and status."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from deadline import PATIENCE
from penstock.cli import main
from penstock.cli.init import quoted
from penstock.cli.validate import spelled
from penstock.config import load
from penstock.config.document import read
from penstock.coordinator import Tally
from penstock.cursor import Watermark
from penstock.sources.sqlite.source import SqliteSource

Said = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path, capsys: Said) -> Path:
    assert main(["init", str(tmp_path)]) == 0
    capsys.readouterr()
    return tmp_path / "pipeline.yaml"


def test_init_writes_a_valid_commented_file_and_says_what_comes_next(tmp_path: Path, capsys: Said) -> None:
    folder = tmp_path / "new folder"
    assert main(["init", str(folder), "--database", "my shop.db", "--url", "https://example.org/x", "--name", "orders"]) == 0
    pipeline = load(folder / "pipeline.yaml")
    assert pipeline.name == "orders"
    assert pipeline.source == SqliteSource(database=str(folder / "my shop.db"))
    assert (folder / "pipeline.yaml").read_text().count("#") > 5
    said = capsys.readouterr().out
    for command in ("capture enable", "run", "status"):
        assert f"penstock {command} '{folder}" in said


def test_init_names_the_pipeline_after_its_database(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--database", "data/Big Shop.sqlite"]) == 0
    assert load(tmp_path / "pipeline.yaml").name == "Big-Shop"


def test_init_shows_a_database_in_a_home_folder_with_its_path(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert main(["init", str(tmp_path), "--database", "~/shop.db"]) == 0
    assert load(tmp_path / "pipeline.yaml").source == SqliteSource(database="/home/me/shop.db")
    assert "penstock capture enable /home/me/shop.db\n" in capsys.readouterr().out


def test_init_replaces_nothing_unless_forced(file: Path, capsys: Said) -> None:
    file.write_text("mine")
    assert main(["init", str(file.parent)]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(["init", str(file.parent), "--force"]) == 0
    assert load(file).name == "shop"


def test_init_leaves_everything_as_it_was_if_the_file_would_be_wrong(tmp_path: Path, capsys: Said) -> None:
    assert main(["init", str(tmp_path), "--url", "nonsense"]) == 2
    assert "http" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pipeline.yaml").write_text("mine")
    assert main(["init", str(tmp_path), "--url", "nonsense", "--force"]) == 2
    assert (tmp_path / "pipeline.yaml").read_text() == "mine"


def test_init_asks_nothing_without_a_terminal(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "penstock", "init", str(tmp_path)], stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE
    )


@pytest.mark.parametrize(
    "text", ["shop.db", "it's: #1", "123", "true", "- x", "", "${X}", "a: b", "https://x/y?z=1#f", "/abs/a b", "C:\\x"]
)
def test_any_text_is_written_so_that_it_reads_back(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "${X}")
    (tmp_path / "x.yaml").write_text(f"a: {quoted(text)}     # comment\n")
    assert read(tmp_path / "x.yaml").values == {"a": text}


def test_validate_shows_every_setting_and_marks_the_defaults(file: Path, capsys: Said) -> None:
    file.write_text(file.read_text().replace("# batch: {size: 100, delay: 5ms}", "batch: {size: 50}"))
    assert main(["validate", str(file), "--json"]) == 0
    found = {one["key"]: (one["value"], one["is_default"]) for one in json.loads(capsys.readouterr().out)["settings"]}
    assert found["source.database"] == (str(file.parent / "shop.db"), False)
    assert found["source.tables"] == (None, True)
    assert found["sink.batch.size"] == (50, False)
    assert found["sink.batch.delay"] == ("5ms", True)
    assert found["sink.retry.max"] == ("30s", True)
    assert found["state"] == (str(file.parent / "penstock.db"), True)
    assert main(["validate", str(file), str(file)]) == 0
    said = capsys.readouterr().out
    assert said.count("is valid") == 2
    assert all(key in said for key in found)


def test_validate_ends_with_2_and_names_the_mistakes(file: Path, capsys: Said) -> None:
    file.write_text("name: x\nsource: {type: sqlite, databse: x}\nsink: {type: discard}\n")
    assert main(["validate", str(file)]) == 2
    assert "source.databse (line 2) is unknown: did you mean database?" in capsys.readouterr().err


def test_validate_shows_nothing_that_is_secret_in_a_url(file: Path, capsys: Said) -> None:
    file.write_text(file.read_text().replace("127.0.0.1:8080/changes", "me:s3cret@127.0.0.1/x?key=s3cret"))
    for form in ([], ["--json"]):
        assert main(["validate", str(file), *form]) == 0
        said = capsys.readouterr().out
        assert "s3cret" not in said
        assert "http://***@127.0.0.1/x?***" in said


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (5, "5ms"),
        (0, "0ms"),
        (0.5, "0.5ms"),
        (1500, "1500ms"),
        (1_234_567, "1234567ms"),
        (90_000, "90s"),
        (120_000, "2m"),
        (7 * 86_400_000, "7d"),
    ],
)
def test_durations_are_shown_as_people_write_them(milliseconds: float, text: str) -> None:
    assert spelled(timedelta(milliseconds=milliseconds)) == text


@pytest.fixture
def captured(file: Path) -> Path:
    from penstock.sources.sqlite.install import enable

    with closing(sqlite3.connect(file.parent / "shop.db")) as shop, shop:
        shop.execute("create table orders (id integer primary key, total real)")
    enable(str(file.parent / "shop.db"))
    with closing(sqlite3.connect(file.parent / "shop.db")) as shop, shop:
        shop.executemany("insert into orders values (?, 1)", [(i,) for i in range(5)])
    return file


def test_status_of_a_pipeline_that_never_ran_shows_what_waits(captured: Path, capsys: Said) -> None:
    assert main(["status", str(captured), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["position"], found["head"], found["backlog"]) == ("stopped", None, 5, 5)
    assert found["lag_seconds"] > 0


def test_status_follows_the_watermark_while_somebody_leads(captured: Path, capsys: Said) -> None:
    pipeline = load(captured)
    (lane,) = pipeline.source.lanes()
    head = pipeline.source.head(lane)
    with closing(pipeline.state.candidate("shop", "me")) as candidate:
        term = candidate.campaign()
        assert term
        pipeline.state.place(term, {lane: Watermark(pipeline.source.begin(lane, "beginning"), 0)})
        with pipeline.state.claim(term, lane, 0) as claim:
            claim.advance(Watermark(head, 5, 5), Tally(5, 2.0))
        assert main(["status", str(captured), str(captured), "--json"]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
        assert first == second
        assert (first["state"], first["holder"], first["position"], first["backlog"], first["rate"]) == ("leading", "me", 5, 0, 2.0)
        pipeline.state.halt(term, {"code": "sink.exhausted", "message": "it said no", "remedy": "repair it"})
        candidate.resign()
    assert main(["status", str(captured)]) == 1
    said = capsys.readouterr().out
    assert "halted" in said
    assert "it said no" in said


def test_status_of_an_unreadable_source_ends_with_1_and_no_traceback(file: Path, capsys: Said) -> None:
    assert main(["status", str(file)]) == 1
    said = capsys.readouterr()
    assert "capture.missing" in said.out
    assert "Traceback" not in said.out + said.err


def ended(watching: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    watching.send_signal(signal.SIGINT)
    _, complaints = watching.communicate(timeout=PATIENCE)
    return watching.returncode, complaints


@pytest.mark.parametrize("form", [["--json"], []])
def test_status_goes_on_until_ctrl_c(captured: Path, form: list[str]) -> None:
    command = [sys.executable, "-m", "penstock", "status", str(captured), "--watch", *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert watching.stdout
        seen = b"".join(watching.stdout.readline() for _ in range(4))
        assert ended(watching) == (0, b"")
    assert seen.count(b"stopped") == (4 if form else 2)


def test_on_a_terminal_status_is_refreshed_in_place(captured: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "penstock", "status", str(captured), "--watch"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as watching:
        seen = b""
        while seen.count(b"stopped") < 2:
            seen += os.read(ours, 1000)
        assert ended(watching) == (0, b"")
    os.close(ours)
    os.close(theirs)
    assert b"\x1b[1A" in seen
