"""Two states for one name: the registration in the source belongs to the first, until a person hands it over."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from penstock.cli import main
from penstock.config import load
from penstock.coordinator import Term
from penstock.errors import SourceOwned, StateLost
from penstock.ownership import refusal
from penstock.pipeline import Pipeline
from penstock.running import admin
from penstock.running.pipeline_run import PipelineRun
from penstock.running.resume import place
from penstock.running.run import run
from penstock.running.settling import Settling
from penstock.source import Source
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE
from penstock.status import remarks

Said = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of ten changes, and two files with one name and a state each."""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table orders(id integer primary key)")
        enable(str(tmp_path / "shop.db"))
        for _ in range(10):
            connection.execute("insert into orders default values")
    for file in ("first", "second"):
        source = {"type": "sqlite", "database": "shop.db"}
        content = {"name": "orders", "source": source, "sink": {"type": "discard"}, "state": f"{file}.db"}
        (tmp_path / f"{file}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


@contextmanager
def leading(pipeline: Pipeline) -> Iterator[Term]:
    with closing(pipeline.state.candidate(pipeline.name, "somebody")) as candidate:
        term = candidate.campaign()
        assert term
        yield term
        candidate.resign()


@pytest.fixture
def first(folder: Path) -> Pipeline:
    """It has begun, and delivered nothing yet."""
    made = load(folder / "first.yaml")
    with leading(made) as term:
        place(made, term, None, None)
    return made


@pytest.fixture
def second(folder: Path, first: Pipeline) -> Pipeline:
    return load(folder / "second.yaml")


def stands(source: Source) -> tuple[list[tuple[int, str]], int]:
    """Where the registration stands, for which state, and where the log begins."""
    readers = [(one.position, Path(one.owner.state).name) for one in source.retention.readers() if one.owner]
    return readers, source.position(source.begin(LANE, "beginning"))


@pytest.mark.parametrize("said", [None, "now", "beginning", "7"])
def test_a_second_state_is_refused_whatever_was_said_before_anything_is_placed(second: Pipeline, said: str | None) -> None:
    with leading(second) as term, pytest.raises(SourceOwned, match=r"registered for the state .*first\.db"):
        place(second, term, said, None)
    assert second.state.pipeline_state("orders").watermarks == {}
    assert stands(second.source) == ([(0, "first.db")], 0)


def test_a_copy_of_the_state_is_the_same_owner(folder: Path, second: Pipeline) -> None:
    shutil.copy(folder / "first.db", folder / "second.db")
    with leading(second) as term:
        place(second, term, None, None)
        Settling(second, lambda _: None).settle()


def test_a_process_of_a_second_state_ends_without_spark(second: Pipeline) -> None:
    told: list[object] = []
    with pytest.raises(SourceOwned):
        run(second, start="now", observer=told.append)
    assert [type(event).__name__ for event in told] == ["Halted"]


def test_a_registration_that_is_handed_back_leaves_the_watermark_of_that_state(
    folder: Path, first: Pipeline, second: Pipeline, capsys: Said
) -> None:
    """A state that was restored from a backup of an earlier version has another identity, and goes on."""
    before = first.state.pipeline_state("orders").watermarks
    admin.forget(second)
    assert main(["forget", str(folder / "first.yaml"), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "its watermark stays" in said
    assert "continues at its watermark" in said
    assert first.state.pipeline_state("orders").watermarks == before != {}
    with leading(first) as term:
        place(first, term, None, None)
    assert stands(first.source) == ([(0, "first.db")], 0)


def test_a_state_that_is_not_known_yet_is_not_refused_before_it_is(second: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that have just started know a topic, and not yet that it has records."""
    monkeypatch.setattr(type(second.state), "identity", lambda _: None)
    assert refusal(second) is None


def test_forget_shows_the_owner_hands_over_and_the_first_state_stops(
    folder: Path, first: Pipeline, second: Pipeline, capsys: Said
) -> None:
    assert main(["forget", str(folder / "second.yaml"), "--yes"]) == 0
    said = capsys.readouterr().out
    assert f"registered for the state {folder / 'first.db'}" in said
    assert f"orders is registered for {folder / 'second.db'} now" in said
    assert stands(first.source) == ([(0, "second.db")], 0)
    settling = Settling(first, lambda _: None)
    for _ in range(2):
        with pytest.raises(SourceOwned):
            settling.settle()
    with leading(first) as term, pytest.raises(SourceOwned):
        place(first, term, None, None)
    with leading(second) as term:
        with pytest.raises(StateLost, match="last noted at position 0"):
            place(second, term, None, None)
        place(second, term, "4", None)
    assert stands(first.source) == ([(4, "second.db")], 0)


def test_a_state_that_has_lost_its_registration_cannot_rewind(folder: Path, first: Pipeline, second: Pipeline) -> None:
    admin.forget(second)
    before = first.state.watermark("orders", LANE)
    assert main(["rewind", str(folder / "first.yaml"), "--to", "now", "--skip", "--yes"]) == 1
    assert first.state.watermark("orders", LANE) == before
    assert stands(first.source) == ([(0, "second.db")], 0)


def test_one_that_loses_it_between_plan_and_deed_does_not_move(
    first: Pipeline, second: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [SimpleNamespace(lane=LANE)]
    admin.forget(second)
    with pytest.raises(SourceOwned):
        admin.rewind(first, moves)  # type: ignore[arg-type]


def test_status_and_doctor_and_capture_status_name_the_owner(folder: Path, second: Pipeline, capsys: Said) -> None:
    [said] = remarks(second)
    assert f"registered for the state {folder / 'first.db'}" in said
    assert remarks(load(folder / "first.yaml")) == []
    main(["doctor", str(folder / "second.yaml"), "--json"])
    [found] = (one for one in json.loads(capsys.readouterr().out)["checks"] if one["check"] == "state")
    assert "first.db" in found["finding"]
    assert "penstock forget FILE" in found["remedy"]
    main(["capture", "status", str(folder / "shop.db"), "--json"])
    [reader] = json.loads(capsys.readouterr().out)["readers"]
    assert reader["owner"]["state"] == str(folder / "first.db")
    assert not (folder / "second.db").exists()


def test_other_pipelines_of_the_process_go_on(second: Pipeline) -> None:
    """A pipeline that is refused keeps no other down: it is only left out."""
    refused = PipelineRun(second, None, SimpleNamespace(is_set=lambda: False), lambda _: None)  # type: ignore[arg-type]
    with refused.entered():
        assert refused.is_refused()
    assert refused.error
    assert refused.error.code == "source.owned"
