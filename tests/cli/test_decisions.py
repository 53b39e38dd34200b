"""The commands rewind and forget, and what status says of those who hold the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli import app, main, terminal
from penstock.config import load
from penstock.coordinator import Term
from penstock.cursor import Watermark
from penstock.errors import ConfigInvalid
from penstock.following import follow
from penstock.pipeline import Pipeline
from penstock.running import admin
from penstock.running.admin import target
from penstock.running.resume import place
from penstock.source import ANONYMOUS
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE

Said = pytest.CaptureFixture[str]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Ten changes; change n is 10 - n hours and a second old, and 5 and 10 are of another table."""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table orders(id integer primary key, total real)")
        connection.execute("create table aside(id integer primary key)")
        enable(str(tmp_path / "shop.db"))
        for number in range(1, 11):
            connection.execute(f"insert into {'aside' if number % 5 == 0 else 'orders'}(id) values(?)", (number,))
        connection.execute("update _penstock_log set at = julianday('now') - (10 - seq) / 24.0 - 1.0 / 86400")
        yield connection


@pytest.fixture
def file(tmp_path: Path, shop: sqlite3.Connection) -> Path:
    content = {
        "name": "orders",
        "source": {"type": "sqlite", "database": "shop.db", "tables": "orders"},
        "sink": {"type": "discard"},
    }
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "orders.yaml"


def stand(pipeline: Pipeline, position: int | str, error: dict[str, str] | None = None) -> Term:
    """Let the pipeline have delivered up to there, and stop, perhaps with an error."""
    with closing(pipeline.state.candidate(pipeline.name, "somebody")) as candidate:
        term = candidate.campaign()
        assert term
        cursor = pipeline.source.begin(LANE, str(position))
        at = pipeline.source.position(cursor)
        pipeline.state.place(term, {LANE: Watermark(cursor, at, at)})
        pipeline.source.retention.register(pipeline.name, LANE, cursor)
        if error:
            pipeline.state.halt(term, error)
        candidate.resign()
        return term


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    made = load(file)
    stand(made, 8, {"code": "sink.exhausted", "message": "it said no", "remedy": "repair it"})
    return made


def watermark(pipeline: Pipeline) -> Watermark:
    found = pipeline.state.watermark(pipeline.name, LANE)
    assert found
    return found


def test_rewind_shows_what_will_come_again_and_asks(pipeline: Pipeline, file: Path) -> None:
    result = CliRunner().invoke(app, ["rewind", str(file), "--to", "4"], input="n\n")
    assert result.exit_code == 1
    assert "4 again" not in result.output  # of the changes 5 to 8, one is of another table
    assert "3 again" in result.output
    assert watermark(pipeline).position == 8
    assert pipeline.state.pipeline_state("orders").error
    assert CliRunner().invoke(app, ["rewind", str(file), "--to", "4"], input="y\n").exit_code == 0
    assert watermark(pipeline).position == 4


def test_a_rewound_pipeline_has_no_error_holds_the_log_there_and_knows_no_predecessor(pipeline: Pipeline, file: Path) -> None:
    assert main(["rewind", str(file), "--to", "4", "--yes"]) == 0
    standing = pipeline.state.pipeline_state("orders")
    assert (standing.error, standing.is_held) == (None, False)
    assert pipeline.source.retention.registered("orders", LANE) == 4
    assert watermark(pipeline).delivered is None
    changes = follow(pipeline.source, LANE, watermark(pipeline).cursor, ANONYMOUS)
    assert next(changes).changes.column("position").to_pylist() == [6, 7, 8, 9]


@pytest.mark.parametrize(("to", "position"), [("beginning", 0), ("0", 0), ("3h", 7), ("240m", 6)])
def test_a_place_is_a_position_a_word_or_how_long_ago(pipeline: Pipeline, file: Path, to: str, position: int) -> None:
    assert main(["rewind", str(file), "--to", to, "--yes"]) == 0
    assert watermark(pipeline).position == position


def test_a_time_means_the_first_change_made_then_or_later(pipeline: Pipeline, file: Path, shop: sqlite3.Connection) -> None:
    [(made,)] = shop.execute("select (at - 2440587.5) * 86400 from _penstock_log where seq = 5")
    moment = datetime.fromtimestamp(made, UTC) - timedelta(milliseconds=500)
    assert main(["rewind", str(file), "--to", moment.isoformat(), "--yes"]) == 0
    assert watermark(pipeline).position == 4
    assert main(["rewind", str(file), "--to", "2099-01-01", "--skip", "--yes"]) == 0
    assert watermark(pipeline).position == 10


def test_what_the_log_no_longer_has_is_refused_with_the_earliest_that_it_has(
    pipeline: Pipeline, file: Path, shop: sqlite3.Connection, capsys: Said
) -> None:
    shop.execute("delete from _penstock_log where seq < 6")
    for to, said in (("3", "choose a position from 5 to 10"), ("8h", "begins at change 6"), ("2000-01-01", "choose --to 5")):
        assert main(["rewind", str(file), "--to", to, "--yes"]) == 2
        assert said in capsys.readouterr().err
    assert watermark(pipeline).position == 8


def test_nothing_is_skipped_unless_that_is_said(pipeline: Pipeline, file: Path, capsys: Said) -> None:
    assert main(["rewind", str(file), "--to", "now", "--yes"]) == 2
    assert "1 changes would never be delivered" in capsys.readouterr().err
    assert watermark(pipeline).position == 8
    assert main(["rewind", str(file), "--to", "now", "--skip", "--yes"]) == 0
    assert "1 SKIPPED" in capsys.readouterr().out
    assert watermark(pipeline) == Watermark(pipeline.source.head(LANE), 10, 8)  # receivers see an unbroken chain


@pytest.mark.parametrize("command", [["rewind", "--to", "2"], ["forget"]])
def test_who_is_led_is_left_alone(pipeline: Pipeline, file: Path, command: list[str], capsys: Said) -> None:
    with closing(pipeline.state.candidate("orders", "the leader")) as leader:
        assert leader.campaign()
        assert main([command[0], str(file), *command[1:], "--yes"]) == 1
    assert "the leader leads orders" in capsys.readouterr().err
    assert watermark(pipeline).position == 8
    assert pipeline.source.retention.registered("orders", LANE) == 8


def test_one_that_moves_between_the_question_and_the_answer_is_left_alone(pipeline: Pipeline) -> None:
    moves = admin.plan(pipeline, "2", NOW)
    stand(pipeline, 9, {"code": "x.y", "message": "m", "remedy": "r"})
    with pytest.raises(ConfigInvalid, match="no longer at position 8"):
        admin.rewind(pipeline, moves)
    assert watermark(pipeline).position == 9
    assert pipeline.state.pipeline_state("orders").error  # and what it stopped with is not forgotten


def test_a_pipeline_that_never_ran_cannot_be_rewound_or_forgotten(file: Path, capsys: Said) -> None:
    assert main(["rewind", str(file), "--to", "2", "--yes"]) == 2
    assert "has no watermark yet" in capsys.readouterr().err
    assert main(["forget", str(file), "--yes"]) == 2
    assert "there is no record of orders" in capsys.readouterr().err
    assert not (file.parent / "penstock.db").exists()


def test_forget_says_what_it_will_do_and_asks(pipeline: Pipeline, file: Path) -> None:
    result = CliRunner().invoke(app, ["forget", str(file)], input="n\n")
    assert result.exit_code == 1
    assert "up to position 8" in result.output
    assert watermark(pipeline).position == 8


def test_a_forgotten_pipeline_starts_as_a_new_one_with_a_later_epoch(pipeline: Pipeline, file: Path) -> None:
    epoch = pipeline.state.pipeline_state("orders").epoch
    assert main(["forget", str(file), "--yes"]) == 0
    assert pipeline.state.watermark("orders", LANE) is None
    assert pipeline.source.retention.registered("orders", LANE) is None
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        assert term.epoch > epoch
        place(pipeline, term, None, None)
    assert watermark(pipeline).position == 0


def test_one_whose_state_is_lost_can_be_forgotten(pipeline: Pipeline, file: Path) -> None:
    for part in file.parent.glob("penstock.db*"):
        if part.is_file():
            part.unlink()
    assert main(["forget", str(file), "--yes"]) == 0
    assert pipeline.source.retention.registered("orders", LANE) is None


def test_one_whose_database_is_lost_can_be_forgotten(pipeline: Pipeline, file: Path, shop: sqlite3.Connection) -> None:
    shop.close()
    for part in file.parent.glob("shop.db*"):
        part.unlink()
    assert main(["forget", str(file), "--yes"]) == 0
    assert pipeline.state.watermark("orders", LANE) is None


def test_one_whose_file_is_lost_is_forgotten_by_name_once_it_is_silent(
    pipeline: Pipeline, shop: sqlite3.Connection, tmp_path: Path, capsys: Said
) -> None:
    by_name = ["forget", "--database", str(tmp_path / "shop.db")]
    assert main([*by_name, "nobody", "--yes"]) == 2
    assert "registered are: orders" in capsys.readouterr().err
    assert main([*by_name, "orders", "--yes"]) == 1
    assert "was in contact with the source" in capsys.readouterr().err
    shop.execute("update _penstock_reader set noted_at = noted_at - 3")
    assert main([*by_name, "orders", "--yes"]) == 0
    assert "last noted 3 d ago; 2 changes" in capsys.readouterr().out
    assert pipeline.source.retention.registered("orders", LANE) is None
    assert main(["forget", "--database", str(tmp_path / "absent.db"), "orders"]) == 2


def test_status_shows_who_holds_the_log_back_and_capture_status_too(
    pipeline: Pipeline, file: Path, shop: sqlite3.Connection, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    pipeline.source.retention.register("absent", LANE, pipeline.source.begin(LANE, "2"))
    main(["status", str(file), str(file)])
    assert "holds the log back" not in capsys.readouterr().out
    shop.execute("update _penstock_reader set noted_at = noted_at - 3 where pipeline = 'absent'")
    main(["status", str(file), str(file)])
    said = capsys.readouterr().out
    assert said.count("absent holds the log back: at position 2, last contact 3 d ago, 6 changes kept for it") == 1
    main(["capture", "status", str(file.parent / "shop.db")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[3:] for words in lines if words[:2] in (["absent", "2"], ["orders", "8"])] == [
        ["gone", "6", "-"],
        ["at", "work", "2", "-"],
    ]


def test_a_table_through_a_pipe_is_as_wide_as_it_is_and_on_a_narrow_screen_folded(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    made = terminal.table(("number", "why"), [("1", "reason " * 60)])
    terminal.show(made)
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "80")
    terminal.show(made)
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_status_shows_how_far_a_snapshot_has_come_and_it_cannot_be_rewound(pipeline: Pipeline, file: Path, capsys: Said) -> None:
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        begin = pipeline.source.begin(LANE, "snapshot")
        pipeline.state.place(term, {LANE: Watermark(begin, 10)})
        [(lane, first)] = pipeline.source.snapshot.ranges(begin).items()
        pipeline.state.place(term, {lane: Watermark(first, pipeline.source.position(first))})
        candidate.resign()
        main(["status", str(file)])
        assert "orders: snapshot: 0 of 1 ranges" in capsys.readouterr().out
        assert main(["rewind", str(file), "--to", "2", "--yes"]) == 2
        assert "has an unfinished snapshot" in capsys.readouterr().err
        term = candidate.campaign()
        assert term
        *_, last = pipeline.source.snapshot.rows(first, again=False)
        assert last.upto
        pipeline.state.place(term, {lane: Watermark(last.upto, pipeline.source.position(last.upto))})
    main(["status", str(file)])
    said = capsys.readouterr().out
    assert "orders: snapshot: 1 of 1 ranges" in said


def test_a_released_pipeline_is_halted_with_the_reason_and_goes_on_where_a_person_says(
    pipeline: Pipeline, shop: sqlite3.Connection
) -> None:
    pruned = watermark(pipeline)
    shop.execute("update _penstock_reader set released_at = noted_at")
    shop.execute("delete from _penstock_log where seq < 10")
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        with pytest.raises(admin.PenstockError, match="orders was released") as raised:
            place(pipeline, term, None, None)
        assert raised.value.code == "source.pruned"
        assert watermark(pipeline) == pruned
        place(pipeline, term, "beginning", raised.value.facts())
    assert watermark(pipeline).position == 9
    assert pipeline.source.retention.registered("orders", LANE) == 9


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)))
def test_a_time_without_a_zone_is_utc(moment: datetime) -> None:
    assert target(moment.isoformat(), NOW) == moment.replace(tzinfo=UTC)


@given(st.integers(0, 10**15))
def test_a_number_is_a_position(position: int) -> None:
    assert target(str(position), NOW) == str(position)


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "2x", "12:00", "1.5"])
def test_what_is_no_place_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="is not a place in a log"):
        target(text, NOW)


def test_how_long_ago_is_taken_from_now() -> None:
    assert target("90m", NOW) == NOW - timedelta(minutes=90)
