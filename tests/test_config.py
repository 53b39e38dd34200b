"""The pipeline file: strict, and helpful about it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config import load, parse
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.delivery.settings import Batch
from penstock.errors import ConfigInvalid, ConfigUnsupported
from penstock.pipeline import Pipeline, SparkSettings, Transform
from penstock.retry import Retry
from penstock.sinks.discard.sink import DiscardSink
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.webhook.sink import WebhookSink
from penstock.sources.sqlite.source import SqliteSource

FULL = """
name: orders
source:
  type: sqlite
  database: shop.db
  tables: "orders|items"
  start: now
transform:
  where: "table = 'orders'"
  select: {total: "after:total", id: "after:id"}
  function: "shop.rules:enrich"
sink:
  type: webhook
  url: https://example.org/hooks/orders
  format: rqlite
  batch: {size: 7, delay: 20ms}
  timeout: 2s
  retry: {tries: forever, policy: linear, min: 2s, max: 1m, then: halt}
  service_id: me
state: state/penstock.db
term: 9s
mode: live
spark: {master: "local[4,4]", config: {spark.ui.enabled: "false"}}
"""


def plain(**changes: Any) -> dict[str, Any]:
    """The least a pipeline needs, with changes."""
    least = {
        "name": "orders",
        "source": {"type": "sqlite", "database": "shop.db"},
        "sink": {"type": "webhook", "url": "http://127.0.0.1/"},
    }
    return {key: value for key, value in {**least, **changes}.items() if value is not ...}


def inside(part: str, **changes: Any) -> dict[str, Any]:
    return plain(**{part: {**plain().get(part, {}), **changes}})


def said(values: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        parse(values)
    return caught.value.message


@pytest.mark.parametrize("values", [plain(state="~nosuchuser/state.db"), inside("source", database="~nosuchuser/shop.db")])
def test_a_path_in_a_home_folder_that_is_not_there_is_told(values: Mapping[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(values, tmp_path)
    assert "~nosuchuser" in caught.value.message
    assert caught.value.remedy


def test_every_key_of_a_file_is_understood(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(FULL)
    assert load(tmp_path / "orders.yaml") == Pipeline(
        name="orders",
        source=SqliteSource(database=str(tmp_path / "shop.db"), tables="orders|items", start="now"),
        transform=Transform(
            where="table = 'orders'", select={"total": "after:total", "id": "after:id"}, function="shop.rules:enrich"
        ),
        sink=WebhookSink(
            url="https://example.org/hooks/orders",
            format="rqlite",
            batch=Batch(size=7, delay=timedelta(milliseconds=20)),
            timeout=timedelta(seconds=2),
            retry=Retry(tries="forever", policy="linear", min=timedelta(seconds=2), max=timedelta(minutes=1)),
            service_id="me",
        ),
        state=SqliteCoordinator(path=str(tmp_path / "state/penstock.db"), ttl=9.0),
        spark=SparkSettings(master="local[4,4]", config={"spark.ui.enabled": "false"}),
        folder=str(tmp_path),
    )


def test_fields_keep_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(FULL)
    assert list(load(tmp_path / "orders.yaml").transform.select or {}) == ["total", "id"]


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    found = parse(plain(sink={"type": "discard"}), tmp_path)
    source = SqliteSource(database=str(tmp_path / "shop.db"))
    assert found == Pipeline("orders", source, DiscardSink(), SqliteCoordinator(path=str(tmp_path / "penstock.db")))


def test_a_pipeline_travels_to_workers_as_one_line() -> None:
    found = parse(plain())
    assert pickle.loads(pickle.dumps(found)) == found


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for database, path in {"/a/b.db": "/a/b.db", "~/b.db": "/home/me/b.db", "../b.db": str(tmp_path / "../b.db")}.items():
        assert parse(inside("source", database=database), tmp_path).source == SqliteSource(database=path)


def test_paths_of_librdkafka_too_but_not_its_word_for_looking_itself(tmp_path: Path) -> None:
    for location, expected in {"ca.pem": str(tmp_path / "ca.pem"), "probe": "probe"}.items():
        config = {"bootstrap.servers": "127.0.0.1:1", "ssl.ca.location": location}
        sink = parse(plain(sink={"type": "kafka", "config": config}), tmp_path).sink
        assert isinstance(sink, KafkaSink)
        assert sink.config["ssl.ca.location"] == expected


def test_the_public_names_are_these() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    assert penstock.load is load
    for name in penstock.__all__:
        assert getattr(penstock, name).__module__.startswith("penstock.") or name in ("Cursor", "Lane")
    with pytest.raises(AttributeError):
        penstock.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (plain(nmae="x"), "nmae is unknown: did you mean name?"),
        (plain(wholly="x"), "wholly is unknown: allowed is name, source, sink, transform, state, term, mode, spark"),
        (plain(name=...), "name is missing"),
        (plain(name=7), "name must be text: put it in quotes"),
        (plain(name="or ders"), "name 'or ders' must be 1 to 64 letters, digits or _ . -"),
        (plain(name="x" * 65), "must be 1 to 64 letters"),
        (plain(source=...), "source is missing"),
        (plain(source="shop.db"), "source must be keys and values below it"),
        (plain(source=None), "source is empty: give it a value, or remove the key"),
        (plain(source={"database": "x"}), "source.type is missing: allowed is outbox, sqlite"),
        (plain(source={"type": "sqlit"}), "source.type sqlit is unknown: did you mean sqlite?"),
        (plain(source={"type": "oracle"}), "source.type oracle is unknown: allowed is outbox, sqlite"),
        (plain(source={"type": ["sqlite"]}), "source.type ['sqlite'] is unknown"),
        (plain(source={"type": "sqlite"}), "source.database is missing"),
        (inside("source", database=5), "source.database must be text"),
        (inside("source", start="yesterday"), "source.start must be beginning, now or snapshot"),
        (inside("sink", type="webhok"), "sink.type webhok is unknown: did you mean webhook?"),
        (inside("sink", ulr="x"), "sink.ulr is unknown: did you mean url?"),
        (inside("sink", url="ftp://x"), "sink.url must begin with http"),
        (inside("source", max_row="9"), "source.max_row: '9' is not a size: write a number from 1 on and a unit"),
        (plain(spark={"memory": "1x"}), "spark.memory: '1x' is not a size: write a number from 1 on and a unit, such as 512m"),
        (plain(spark={"memory": "511m"}), "spark.memory: 511m is less than 512MiB, and Spark does not start with less"),
        (
            plain(spark={"memory": "2g", "config": {"spark.driver.memory": "1g"}}),
            "spark.memory and spark.config.spark.driver.memory exclude each other: remove the latter",
        ),
        (inside("sink", batch={"size": "many"}), "sink.batch.size must be a whole number"),
        (inside("sink", batch={"size": 0}), "sink.batch.size is 0: it must be 1 or more"),
        (inside("sink", batch={"delay": 5}), "sink.batch.delay: 5 is not a duration: write a number and a unit"),
        (inside("sink", timeout="9" * 20 + "d"), "sink.timeout: '99999999999999999999d' is too long: write 36500d or less"),
        (inside("sink", batch=[]), "sink.batch must be keys and values below it"),
        (inside("sink", retry={"tries": "often"}), "sink.retry.tries must be a whole number or forever"),
        (inside("sink", retry={"tries": True}), "sink.retry.tries must be a whole number or forever"),
        (inside("sink", retry={"policy": "mild"}), "sink.retry.policy must be linear or exponential"),
        (inside("sink", retry={"polcy": "linear"}), "sink.retry.polcy is unknown: did you mean policy?"),
        (inside("sink", retry={"min": "2m"}), "retry.min is longer than retry.max"),
        (inside("sink", service_id="x"), "service_id belongs to format rqlite"),
        (plain(sink={"type": "discard", "url": "x"}), "sink.url is unknown: no key is allowed here"),
        (plain(transform={"function": "a:b", "timeout": "5ms"}), "transform.timeout is too short: write 100ms or more"),
        (plain(transform={"function": "a:b", "timeout": 5}), "transform.timeout: 5 is not a duration: write a number and a unit"),
        (plain(transform={"timeout": "5s"}), "transform.timeout limits calls of transform.function, which is missing"),
        (plain(transform={"were": "x"}), "transform.were is unknown: did you mean where?"),
        (plain(transform={"where": " "}), "transform.where is empty: write a condition"),
        (plain(transform=None), "transform is empty"),
        (plain(transform={"select": {}}), "transform.select is empty: name a field and its expression"),
        (plain(transform={"select": {"id": ""}}), "transform.select.id is empty: write an expression"),
        (plain(transform={"select": {"id": 1}}), "transform.select.id must be text: put it in quotes"),
        (plain(transform={"select": "id"}), "transform.select must be keys and values below it"),
        (plain(transform={"function": "enrich"}), "transform.function 'enrich' must be module:name, such as shop.rules:enrich"),
        (plain(transform={"function": "a b:c"}), "must be module:name"),
        (plain(term=5), "term: 5 is not a duration: write a number and a unit"),
        (plain(term="4s"), "term must be 5s or longer"),
        (plain(term="9s", state="kafka://a:1/s"), "term cannot be set with state: kafka://, where session-timeout in the address"),
        (plain(mode="fast"), "mode must be live or batch"),
        (
            plain(state="redis://u:secret@x"),
            "state redis:// is unknown: allowed is kafka, postgresql, postgres, or the path of a file",
        ),
        (plain(state="postgresql://u:sec/ret@x/y"), "the Postgres address under `state` is malformed"),
        (plain(state="./shop.db"), "state is the database of the source: name another file"),
        (plain(spark={"master": 4}), "spark.master must be text"),
        (plain(spark={"config": {"spark.ui.enabled": False}}), "spark.config.spark.ui.enabled must be text"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_fix(values: Mapping[str, Any], expected: str) -> None:
    assert expected in said(values)


def test_tables_must_be_a_regular_expression() -> None:
    with pytest.raises(ConfigInvalid, match="regular expression"):
        parse(inside("source", tables="orders("))


def test_a_folder_is_no_state_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="is a folder: name a file in it, such as "):
        parse(plain(state=str(tmp_path)))


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("nmae: x\nsource:\n  type: sqlite\n  tabels: x\nsink: {type: webhook, url: 5}\nmode: fast\n")
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path / "p.yaml")
    told = caught.value.message.removeprefix(f"{tmp_path}/p.yaml: ").split("; ")
    assert told == [
        "name is missing",
        "nmae (line 1) is unknown: did you mean name?",
        "source.database (line 2) is missing",
        "source.tabels (line 4) is unknown: did you mean tables?",
        "sink.url (line 5) must be text: put it in quotes",
        "mode (line 6) must be live or batch",
    ]
    assert "6 keys" in caught.value.remedy


def test_values_that_cannot_be_are_told_at_once_too_each_with_its_own_line(tmp_path: Path) -> None:
    lines = ["name: a", "source:", "  type: sqlite", "  database: shop.db", "  retain: {changes: 0, age: 0s}", "sink:"]
    lines += ["  type: webhook", "  url: ftp://x", "  parallel: 99", "  batch:", "    size: 0", "    delay: 1s"]
    lines += ["  retry:", "    tries: 0", "    keys: go-on", "  headers:", "    Host: x", "    X-Y: ''"]
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path / "p.yaml")
    told = caught.value.message.removeprefix(f"{tmp_path}/p.yaml: ").split("; ")
    assert [line.partition(")")[0] for line in told if "(line" in line] == [
        "source.retain.changes (line 5",
        "source.retain.age (line 5",
        "sink.url (line 8",
        "sink.parallel (line 9",
        "sink.batch.size (line 11",
        "sink.retry.tries (line 14",
        "sink.retry.keys (line 15",
        "sink.headers.Host (line 17",
        "sink.headers.X-Y (line 18",
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        *((inside("source", type=kind), f"source.type: {kind}") for kind in ("postgres", "rqlite", "scylla", "feed")),
        *((inside("sink", type=kind), f"sink.type: {kind}") for kind in ("feed", "table", "consumer", "stdout")),
        *((plain(state=f"{kind}://x"), f"state: {kind}://") for kind in ("rqlite",)),
    ],
)
def test_what_a_later_version_will_have_is_known_and_refused(values: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(ConfigUnsupported) as caught:
        parse(values)
    assert expected in caught.value.message


def test_the_parser_is_not_needed_by_workers(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("name: p\nsource: {type: sqlite, database: x}\nsink: {type: discard}\n")
    script = "import pickle, sys; pickle.loads(sys.stdin.buffer.read()); print(*sys.modules)"
    pickled = pickle.dumps(load(tmp_path / "p.yaml"))
    loaded = subprocess.run([sys.executable, "-c", script], input=pickled, capture_output=True, check=True).stdout.decode().split()
    assert not {"pydantic", "yaml", "typer", "rich", "pyspark", "urllib3", "httptools"} & set(loaded)
