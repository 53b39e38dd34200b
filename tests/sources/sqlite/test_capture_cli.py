"""`penstock capture` as a person uses it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from replay import connect, logged
from typer.testing import CliRunner, Result

from deadline import PATIENCE
from penstock.cli.capture import app
from penstock.errors import ConfigInvalid


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


def test_suspend_resume_and_repair(shop: Path) -> None:
    capture("enable", shop)
    assert "suspended" in capture("suspend", shop, "orders").output
    facts = json.loads(capture("status", shop, "--json").output)
    assert {table["table"]: table["state"] for table in facts["tables"]} == {
        "orders": "suspended",
        "items": "captured",
        "v": "not capturable",
    }
    assert "suspended" in capture("status", shop).output
    assert "suspended" in capture("enable", shop).output
    assert "resumed" in capture("resume", shop).output
    assert "nothing was suspended" in capture("resume", shop).output
    assert "nothing is missing" in capture("repair", shop).output
    assert "repaired: all 0 rows" in capture("repair", shop, "orders").output


def test_a_command_runs_while_capture_is_suspended_and_its_exit_code_is_ours(shop: Path) -> None:
    capture("enable", shop)
    migrate = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('alter table orders add column note'); db.execute('alter table orders drop column note');"
        "db.execute('insert into orders values(7)'); sys.exit(5)"
    )
    result = capture("suspend", shop, "--", sys.executable, "-c", migrate, shop)
    assert result.exit_code == 5
    assert "1 touched rows logged again" in result.output
    assert [(change.op, change.key) for change in logged(shop)] == [("refresh", '{"id":7}')]
    with pytest.raises(ConfigInvalid, match="cannot be run"):
        capture("suspend", shop, "--", shop.parent / "absent")
    assert capture("status", shop).exit_code == 0
    assert "suspended" not in capture("status", shop).output


def test_a_command_that_is_stopped_leaves_nothing_suspended(shop: Path) -> None:
    capture("enable", shop)
    sleeper = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(86400)"]
    command = [sys.executable, "-m", "penstock", "capture", "suspend", str(shop), "--", *sleeper]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("asleep" in line for line in running.stdout)
        running.terminate()
        assert running.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    facts = json.loads(capture("status", shop, "--json").output)
    assert {table["state"] for table in facts["tables"]} == {"captured", "not capturable"}


def test_columns_are_chosen_and_shown(shop: Path) -> None:
    assert capture("enable", shop, "--tables", "items", "--row-ids-only").exit_code == 0
    with closing(connect(shop)) as writer:
        writer.execute("insert into items values('secret')")
    [change] = logged(shop)
    assert (change.key, change.after) == ('{"rowid":1}', "{}")
    assert "without a" in capture("status", shop).output
    with pytest.raises(ConfigInvalid, match="exclude each other"):
        capture("enable", shop, "--columns", ".*", "--row-ids-only")
    with pytest.raises(ConfigInvalid, match="not a regular expression"):
        capture("enable", shop, "--columns", "(")


@pytest.mark.parametrize("command", ["suspend", "resume", "repair"])
def test_a_table_that_is_not_captured_is_the_callers_mistake(shop: Path, command: str) -> None:
    capture("enable", shop, "--tables", "orders")
    with pytest.raises(ConfigInvalid, match="captured"):
        capture(command, shop, "absent")


@pytest.mark.parametrize("command", ["enable", "disable", "status", "suspend", "resume", "repair"])
def test_a_missing_database_is_not_created(tmp_path: Path, command: str) -> None:
    with pytest.raises(ConfigInvalid, match="there is no database"):
        capture(command, tmp_path / "absent.db")
    assert list(tmp_path.iterdir()) == []
