"""`penstock capture` as a person uses it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from replay import connect, logged
from typer.testing import CliRunner, Result

from penstock.cli.capture import app
from penstock.errors import ConfigInvalid, ConfigUnsupported


@pytest.fixture
def shop(path: Path) -> Path:
    with closing(connect(path)) as writer:
        writer.executescript("create table orders(id integer primary key); create table items(a); create view v as select 1")
    return path


def capture(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_enable_status_and_disable(shop: Path) -> None:
    assert "orders" in capture("enable", shop, "--tables", "orders").output
    with closing(connect(shop)) as writer:
        writer.execute("insert into orders values(1)")
    assert len(logged(shop)) == 1
    facts = json.loads(capture("status", shop, "--json").output)
    assert {table["table"]: table["state"] for table in facts["tables"]} == {
        "orders": "captured",
        "items": "not captured",
        "v": "not capturable",
    }
    assert (facts["enabled"], facts["first"], facts["head"], facts["readers"], facts["journal_mode"]) == (True, 1, 1, [], "wal")
    assert "captured" in capture("status", shop).output
    assert "disabled" in capture("disable", shop).output
    assert json.loads(capture("status", shop, "--json").output)["enabled"] is False


def test_print_sql_shows_and_changes_nothing(shop: Path) -> None:
    assert "create trigger" in capture("enable", shop, "--print-sql").output
    assert json.loads(capture("status", shop, "--json").output)["enabled"] is False
    capture("enable", shop)
    assert "drop trigger" in capture("disable", shop, "--print-sql").output
    assert json.loads(capture("status", shop, "--json").output)["enabled"] is True


def test_a_broken_capture_is_shown_and_is_an_error(shop: Path) -> None:
    capture("enable", shop)
    with closing(connect(shop)) as writer:
        writer.execute("alter table orders add column note")
    result = capture("status", shop)
    assert result.exit_code == 1
    assert "was altered" in result.output
    assert "renewed" in capture("enable", shop).output
    assert capture("status", shop).exit_code == 0


def test_a_database_without_wal_gets_a_hint(path: Path) -> None:
    with sqlite3.connect(path) as writer:
        writer.execute("create table t(a)")
    writer.close()
    assert "--wal" in capture("enable", path).output
    assert "--wal" not in capture("enable", path, "--wal").output


@pytest.mark.parametrize("command", ["suspend", "resume", "repair"])
def test_what_comes_later_says_so(shop: Path, command: str) -> None:
    with pytest.raises(ConfigUnsupported, match="not supported yet"):
        capture(command, shop)


@pytest.mark.parametrize("command", ["enable", "disable", "status"])
def test_a_missing_database_is_not_created(tmp_path: Path, command: str) -> None:
    with pytest.raises(ConfigInvalid, match="there is no database"):
        capture(command, tmp_path / "absent.db")
    assert list(tmp_path.iterdir()) == []
