"""What `doctor`, `status` and `forget` say of a real outbox with real trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml

from penstock.change import Lane
from penstock.checkup.examination import examine
from penstock.cli import main
from penstock.config import load
from penstock.cursor import Cursor
from penstock.files import room
from penstock.finding import Finding, Severity
from penstock.outbox import stash
from penstock.source import Reader
from penstock.sources.outbox import survey
from penstock.sources.outbox.checks import judged_space
from penstock.sources.outbox.source import LANE, OutboxSource
from penstock.status import remarks


@pytest.fixture
def file(postgres_of_module: str, tmp_path: Path) -> Path:
    assert main(["outbox", "init", postgres_of_module]) == 0
    made = tmp_path / "orders.yaml"
    source = {"type": "outbox", "database": postgres_of_module}
    made.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": {"type": "discard"}, "state": "state.db"}))
    made.chmod(0o600)
    return made


@pytest.fixture
def idle(postgres_of_module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A session that somebody left open, as old as to be worth a word; its process."""
    monkeypatch.setattr(survey, "HELD_SECONDS", 0.0)
    with psycopg.connect(postgres_of_module, application_name="report") as connection:
        connection.execute("select pg_current_xact_id()")
        yield connection.info.backend_pid
        connection.rollback()


def found(file: Path, check: str) -> list[Finding]:
    return [one for one in examine([file]) if one.check == check]


def test_a_sound_outbox_is_found_sound(file: Path) -> None:
    verdicts = {one.check: one.verdict for one in examine([file])}
    assert verdicts["outbox"] == verdicts["space"] == verdicts["secrets"] == Severity.OK


def test_the_disk_of_the_state_file_is_examined(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LEAST", 1 << 60)
    [one] = found(file, "disk")
    assert (one.verdict, str(file.parent) in one.said) == (Severity.FAILED, True)


def test_an_outbox_that_is_purged_meanwhile_is_found_sound(
    file: Path, postgres_of_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge comes between the look at its beginning and the count from there."""
    with psycopg.connect(postgres_of_module) as writer:
        stash(writer, "t", "k", "v")
    source, real = OutboxSource(database=postgres_of_module), OutboxSource.begin
    end = source.head(LANE)

    def then_purged(self: OutboxSource, lane: Lane, start: str) -> Cursor:
        cursor = real(self, lane, start)
        monkeypatch.setattr(OutboxSource, "begin", real)
        assert source.retention.settle("p", LANE, end).pruned
        return cursor

    monkeypatch.setattr(OutboxSource, "begin", then_purged)
    try:
        assert [one.verdict for one in found(file, "outbox")] == [Severity.OK]
    finally:
        source.retention.forget("p")


def test_who_holds_vacuum_back_is_named_with_what_ends_it(file: Path, idle: int) -> None:
    [finding] = [one for one in found(file, "space") if "report" in one.said]
    assert (finding.verdict, finding.remedy) == (Severity.WARNING, f"select pg_terminate_backend({idle})")
    assert any(f"session {idle} of report" in said for said in remarks(load(file)))


def test_a_prepared_transaction_that_was_forgotten_is_named(file: Path, postgres_of_module: str, idle: int) -> None:
    with psycopg.connect(postgres_of_module, autocommit=True) as connection:
        connection.execute("begin")
        connection.execute("insert into outbox (topic) values ('t')")
        connection.execute("prepare transaction 'forgotten'")
        try:
            assert any("prepared transaction 'forgotten'" in one.said for one in found(file, "space"))
        finally:
            connection.execute("rollback prepared 'forgotten'")


def test_ids_taken_ahead_and_a_listener_without_a_trigger_are_found(file: Path, postgres_of_module: str) -> None:
    values = yaml.safe_load(file.read_text())
    values["source"]["notify"] = True
    file.write_text(yaml.safe_dump(values))

    def said() -> list[tuple[Severity, str]]:
        return [(one.verdict, one.remedy) for one in found(file, "outbox")]

    with psycopg.connect(postgres_of_module, autocommit=True) as connection:
        connection.execute("alter table outbox alter column id set cache 10")
        assert said() == [(Severity.FAILED, "penstock outbox init DSN")]
        assert main(["outbox", "init", postgres_of_module]) == 0
        assert (Severity.WARNING, "penstock outbox init DSN --notify") in said()
    assert main(["outbox", "init", postgres_of_module, "--notify"]) == 0
    assert [one.verdict for one in found(file, "outbox")] == [Severity.OK]


def test_a_pipeline_that_is_gone_is_named_as_the_one_to_forget() -> None:
    [finding] = judged_space([], [Reader("old", 3, 100_000.0, 7, is_gone=True, is_released=False)])
    assert finding.remedy == "run it, or: penstock forget --database DSN old"


def test_a_pipeline_whose_file_is_lost_can_be_forgotten(postgres_of_module: str, file: Path) -> None:
    source = OutboxSource(database=postgres_of_module)
    source.retention.register("lost", LANE, source.begin(LANE, "beginning"))
    assert main(["forget", "--database", postgres_of_module, "lost", "--yes"]) == 1  # it gave a sign of life just now
    with psycopg.connect(postgres_of_module) as connection:
        connection.execute("update outbox_reader set noted_at = noted_at - interval '1 day'")
    assert main(["forget", "--database", postgres_of_module, "lost", "--yes"]) == 0
    assert source.retention.readers() == []


def test_init_shows_its_sql_and_refuses_what_is_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["outbox", "init", "postgresql://nobody@127.0.0.1:1/x", "--print-sql", "--table", "shop.events"]) == 0
    assert 'create table if not exists "shop"."events"' in capsys.readouterr().out
    assert main(["outbox", "init", "postgresql://nobody@127.0.0.1:1/x", "--table", "a.b.c"]) == 2
    assert main(["outbox", "init", "postgresql://nobody:secret@127.0.0.1:1/x"]) == 1
    assert "secret" not in capsys.readouterr().err
