"""What docs/webhook.md shows is what happens."""

import dataclasses
import json
import re
import sqlite3
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest

from facts import facts
from penstock.change import Change, Op, to_batch
from penstock.cli.validate import spelled
from penstock.formats.cloudevents import CloudEventsFormat
from penstock.formats.debezium import DebeziumFormat
from penstock.formats.penstock import PenstockFormat
from penstock.formats.rqlite import RqliteFormat, untagged
from penstock.sinks.webhook.sink import WebhookSink
from penstock.text.duration import parse

DOC = Path(__file__).parents[2].joinpath("docs/webhook.md").read_text()
START = 1_767_225_600_000_000
CHEAP, DEAR = '{"id":7,"total":12.5}', '{"id":7,"total":15.0}'
CHANGES = [
    Change(12, Op.INSERT, "orders", '{"id":7}', None, CHEAP, START, facts(None, 7)),
    Change(13, Op.UPDATE, "orders", '{"id":7}', CHEAP, DEAR, START + 250_000, facts(7, 7)),
    Change(15, Op.DELETE, "orders", '{"id":7}', DEAR, None, START + 1_000_000, facts(7, None)),
]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOC, re.DOTALL)


def body(form, *changes, previous=11):
    return form.body(form.texts(to_batch(changes), previous))


def test_the_bodies_shown_are_the_bodies_sent():
    shown = [json.loads(block) for block in blocks("json")]
    whole = PenstockFormat("orders"), RqliteFormat("orders", service="shop"), DebeziumFormat("orders")
    sent = [json.loads(body(form, *CHANGES)) for form in whole]
    assert shown == [*sent, json.loads(body(CloudEventsFormat("orders", "cafe"), CHANGES[0]))]


def table(heading):
    section = DOC.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`|(?<=\| )([a-z]+)", line) for line in lines]


def defaults(settings, prefix=""):
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from defaults(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.metadata.get("absent") if value is None else value


def test_every_setting_is_shown_with_its_default():
    shown = {row[0][0]: row[1][0] or row[1][1] for row in table("Settings")}
    real = dict(defaults(WebhookSink(url="http://h/")))
    assert shown.pop("url") == "required"
    del real["url"]
    assert {key: parse(text) if isinstance(real[key], timedelta) else text for key, text in shown.items()} == {
        key: value if isinstance(value, timedelta) else "none" if value is None else str(spelled(value))
        for key, value in real.items()
    }


def test_values_are_shown_as_each_format_sends_them():
    section = DOC.split("\n## Values\n")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[2:4] for line in section.splitlines() if line.startswith("| `")]
    pairs = [[cell.strip().strip("`") for cell in row] for row in rows]
    assert len(pairs) == 10
    for ours, theirs in pairs[:-1]:
        json.loads(ours)
        assert untagged(f'{{"a":{ours}}}') == f'{{"a":{theirs}}}'


def rows(db):
    return db.execute("select id, total from orders").fetchall()


@pytest.fixture
def taking(tmp_path):
    names = {}
    exec(blocks("python")[0], names)
    db = sqlite3.connect(tmp_path / "receiver.db")
    db.execute("create table orders (id integer primary key, total real)")
    orders = names["Orders"](db)

    def take(epoch, content):
        """Through WSGI."""
        environ = {"CONTENT_LENGTH": str(len(content)), "wsgi.input": BytesIO(content), "HTTP_PENSTOCK_EPOCH": str(epoch)}
        environ |= {"HTTP_PENSTOCK_LANE": "main", "HTTP_PENSTOCK_INCARNATION": "cafe"}
        answered = []
        assert orders(environ, lambda status, headers: answered.append(int(status.split()[0]))) == []
        return answered.pop()

    yield take, db
    db.close()


def test_the_receiver_shown_applies_each_change_once_and_refuses_gaps_and_deposed_leaders(taking):
    take, db = taking
    form = PenstockFormat("orders")
    assert take(3, body(form, CHANGES[0])) == 200
    assert take(3, body(form, CHANGES[0])) == 200
    assert rows(db) == [(7, 12.5)]
    assert take(3, body(form, CHANGES[2], previous=13)) == 409
    assert rows(db) == [(7, 12.5)]
    assert take(4, body(form, *CHANGES[:2])) == 200
    assert take(4, body(form, CHANGES[0])) == 200
    assert rows(db) == [(7, 15.0)]
    assert take(3, body(form, CHANGES[2], previous=13)) == 409
    assert take(4, body(form, CHANGES[2], previous=13)) == 200
    assert rows(db) == []


def test_the_receiver_shown_leaves_out_what_is_not_of_its_table(taking):
    take, db = taking
    altered = '{"columns":["id","total"],"keys":["id"]}'
    others = [
        Change(12, Op.SCHEMA, "orders", "{}", altered, altered, START),
        Change(13, Op.INSERT, "stock", '{"sku":"a"}', None, '{"sku":"a"}', START),
    ]
    form = PenstockFormat("orders")
    assert take(3, body(form, *others)) == 200
    assert take(3, body(form, CHANGES[0].replace(position=14), previous=13)) == 200
    assert rows(db) == [(7, 12.5)]
