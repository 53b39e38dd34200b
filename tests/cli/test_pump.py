"""`penstock pump`, over a real Postgres."""

from __future__ import annotations

import sys

import psycopg
import pytest

from penstock.cli import main

Said = pytest.CaptureFixture[str]
SELECT = {
    "penstock": "select topic, convert_from(key, 'UTF8'), convert_from(value, 'UTF8'), header_keys, header_values from outbox",
    "goharvest": "select kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values from outbox",
}


@pytest.mark.parametrize("layout", SELECT)
def test_pump_writes_to_a_table_of_either_layout(layout: str, postgres: str) -> None:
    assert main(["outbox", "init", postgres, "--layout", layout]) == 0
    assert main(["pump", "--ds", postgres, "--keys", "1", "--records", "21"]) == 0
    assert main(["pump", "--ds", postgres, "--keys", "1", "--records", "1", "--blank"]) == 0
    with psycopg.connect(postgres) as connection:
        *rows, blank = connection.execute(f"{SELECT[layout]} order by id").fetchall()
    as_stored = str.encode if layout == "penstock" else str
    assert rows == [("pump", "key-0", f"value-{n:x}", ["Seq"], [as_stored(str(n))]) for n in range(21)]
    assert blank == ("pump", "key-0", None, ["Seq"], [as_stored("0")])


def test_pump_refuses_a_table_that_is_no_outbox(postgres: str, capsys: Said) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("create table orders(id int)")
    assert main(["pump", "--ds", postgres, "--outbox", "orders"]) == 2
    assert "orders is not an outbox" in capsys.readouterr().err


def test_pump_without_a_driver_names_the_extra(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(["pump", "--ds", "postgresql://h/d"]) == 2
    assert "pip install 'penstock[postgres]'" in capsys.readouterr().err


def test_pump_does_not_show_a_password_that_the_driver_cannot_read(capsys: Said) -> None:
    assert main(["pump", "--ds", "postgresql://app:s3cret%zz@h/d"]) == 2
    said = capsys.readouterr().err
    assert "invalid percent-encoded token" in said
    assert "s3cret" not in said
