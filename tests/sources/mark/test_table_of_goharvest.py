"""Making the table, looking at it, and carrying it to Kafka one record of a key at a time, in every database."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import yaml
from desks import Desk

from deadline import PATIENCE
from penstock.change import Lane
from penstock.checkup.examination import checks
from penstock.cli import main
from penstock.config import load, parse
from penstock.errors import ConfigInvalid, OutboxMissing, OutboxUnfit, SourceUnavailable
from penstock.finding import Severity
from penstock.following import follow
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.kafka.barrier import BarrierDelivery
from penstock.sinks.kafka.sink import KafkaSink
from penstock.source import Source, Stamp
from penstock.sources.outbox.mark import databases, mysql
from penstock.sources.outbox.mark.source import LANE, MarkSource
from servers.broker import Broker
from servers.mariadb import MariaServer

SINK = {"type": "kafka", "delivery": "barrier", "config": {"bootstrap.servers": "127.0.0.1:1"}}
QUICK = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=50))


def parsed(**source: object) -> Source:
    made = parse({"name": "p", "source": {"type": "outbox", "reader": "mark", **source}, "sink": SINK}).source
    assert made.row_lease
    return made


def test_rows_are_carried_one_of_a_key_at_a_time_and_purged(desk: Desk, broker: Broker) -> None:
    topic = broker.create(partitions=1)
    desk.commit(*(str(number) for number in range(40)), key="a", names=["h"], said=["ü"])
    desk.commit(None, key="b")
    desk.execute(f"update {{}} set kafka_topic = '{topic}'")
    sink = KafkaSink(config={"bootstrap.servers": broker.servers}, delivery="barrier", retry=QUICK)
    lease = desk.source.row_lease.open(Stamp(1, 0))
    about = Assignment("p", Lane("outbox"), 1, 0, "mark", None, lambda _: None, row_lease=lease, has_messages=True)
    with closing(BarrierDelivery(sink, about)) as delivery:
        for window in follow(desk.source, LANE, desk.start, Stamp(1, 0)):
            assert delivery.offer(window.changes, PATIENCE)
            if not desk.marks():
                break
    came = broker.records(topic)
    assert sorted({int(one.value or b"") for one in came if one.key == b"a"}) == list(range(40))
    assert [int(one.value or b"") for one in came if one.key == b"a"] == sorted(int(one.value or b"") for one in came if one.value)
    assert {(one.key, one.value) for one in came if one.key != b"a"} == {(b"b", None)}
    assert came[0].headers == [("h", "ü".encode())]


def test_doctor_looks_at_it(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    source = {"type": "outbox", "database": desk.source.database, "table": desk.table, "reader": "mark"}
    file.write_text(yaml.safe_dump({"name": "p", "source": source, "sink": SINK}))
    desk.commit("a", "b")
    desk.reader(5).changes(2)
    [found] = checks(file, load(file))["outbox"]()
    assert (found.verdict, found.said) == (Severity.OK, f"{desk.table}: 2 messages, read by marks")
    desk.execute("alter table {} rename column kafka_topic to another")
    with pytest.raises(OutboxUnfit, match="kafka_topic"):
        list(checks(file, load(file))["outbox"]())


def test_a_database_that_is_not_there_is_said(desk: Desk, tmp_path: Path) -> None:
    where = {"postgresql": "postgresql://app:s3cret@127.0.0.1:1/x", "mysql": "mysql://app:s3cret@127.0.0.1:1/x"}
    database = where.get(desk.source.database.partition("://")[0], str(tmp_path / "nowhere.db"))
    with pytest.raises((SourceUnavailable, OutboxMissing)) as raised:
        MarkSource(database=database).backlog(LANE, desk.start)
    assert "s3cret" not in str(raised.value)


def test_the_remedy_for_a_missing_table_is_the_command_that_makes_it(desk: Desk) -> None:
    with pytest.raises(OutboxMissing) as missing:
        MarkSource(database=desk.source.database, table="nowhere").backlog(LANE, desk.start)
    assert missing.value.remedy.endswith(" --table nowhere --layout goharvest")


def test_a_role_without_rights_is_referred_to_the_list_of_rights(postgres_of_module: str) -> None:
    databases.create(postgres_of_module, "guarded")
    with psycopg.connect(postgres_of_module, autocommit=True) as owner:
        owner.execute("create role guarded login password 'guest'")
        source = MarkSource(database=f"postgresql://guarded:guest@{postgres_of_module.rpartition('@')[2]}", table="guarded")
        with pytest.raises(OutboxUnfit, match="permission denied") as refused:
            source.backlog(LANE, source.begin(LANE, "beginning"))
        owner.execute("drop role guarded")
    assert refused.value.remedy == "grant this role the rights that docs/goharvest.md lists"


def test_a_table_in_another_database_of_the_server_is_made_there(mariadb_server: MariaServer, mariadb_of_module: str) -> None:
    databases.create(mariadb_of_module, "outbox")
    other = mariadb_server.create_database().rpartition("/")[2]
    assert databases.create(mariadb_of_module, f"{other}.outbox")
    assert not databases.create(mariadb_of_module, f"{other}.outbox")
    source = MarkSource(database=mariadb_of_module, table=f"{other}.outbox")
    assert source.backlog(LANE, source.begin(LANE, "beginning")).changes == 0


@pytest.mark.parametrize("dsn", ["mysql://app:s3/cret@localhost/shop", "mysql://localhost/shop?connect_timeout=soon"])
def test_a_dsn_with_a_number_that_is_none_is_refused(dsn: str) -> None:
    with pytest.raises(ConfigInvalid, match="number") as refused:
        databases.create(dsn, "outbox")
    assert "s3" not in str(refused.value)


def test_init_makes_the_table_and_shows_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "app.db")
    assert main(["outbox", "init", path, "--layout", "goharvest"]) == 0
    assert main(["outbox", "init", path, "--layout", "goharvest"]) == 0
    said = capsys.readouterr().out
    assert "outbox: created" in said
    assert "exists already and stays" in said
    for database in (path, "mysql://app@localhost/shop", "postgresql://app@localhost/shop"):
        assert main(["outbox", "init", database, "--layout", "goharvest", "--print-sql"]) == 0
        assert "leader_id" in capsys.readouterr().out
    for wrong in (["--notify"], ["--table", "a.b.c"]):
        assert main(["outbox", "init", path, "--layout", "goharvest", *wrong]) == 2
    assert main(["outbox", "init", "oracle://x", "--layout", "goharvest"]) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"database": "oracle://x"}, "postgresql://..., mysql://..., mariadb://..., or the path of a SQLite database"),
        ({"database": "x.db", "table": "a.b"}, "in SQLite a table has no schema"),
        ({"database": "x.db", "mark_query_records": 0}, "mark_query_records must be from 1 to 10000"),
        ({"database": "x.db", "mark_backoff": "1m"}, "mark_backoff must be from 0ms to 10s"),
        ({"database": "x.db", "start": "now"}, "source.start"),
        ({"database": "x.db", "notify": True}, "source.notify"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(source: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        parsed(**source)


def test_a_path_is_seen_from_the_file_and_a_strange_option_of_a_dsn_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump({"name": "p", "source": {"type": "outbox", "reader": "mark", "database": "a.db"}, "sink": SINK}))
    assert load(file).source.database == str(tmp_path / "a.db")
    with pytest.raises(ConfigInvalid, match="unknown option colour"):
        databases.create("mysql://app@localhost/shop?colour=red", "outbox")


def test_a_named_authority_vouches_for_the_server_and_its_name() -> None:
    settings = mysql._arguments("mysql://app@db.example/shop?ssl_ca=ca.pem")
    assert (settings["ssl_ca"], settings["ssl_verify_cert"], settings["ssl_verify_identity"]) == ("ca.pem", True, True)
    assert "ssl_verify_cert" not in mysql._arguments("mysql://app@db.example/shop")
