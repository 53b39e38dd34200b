"""Messages that Kafka will never take, over TLS and with a password: parked, waited for by their keys alone, and sent again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import trustme
import yaml

from deadline import until
from penstock.cli import main
from penstock.outbox import stash, stash_many
from penstock.testing.broker import Broker
from penstock.testing.postgres import PostgresServer
from program import Program, status

BAD_HEADERS = """
alter table outbox drop constraint outbox_headers_check;
insert into outbox (topic, key, value, header_keys, header_values) values ('{}', 'd', 'd1', array['a'], array['x', 'y']::bytea[])
"""


def written(folder: Path, dsn: str, broker: Broker) -> Path:
    (folder / "kafka.password").write_text("app-secret\n")
    config = {
        "bootstrap.servers": broker.encrypted,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": "${file:kafka.password}",
        "topic.metadata.propagation.max.ms": 500,
        "batch.size": 10_000,
    }
    sink = {"type": "kafka", "config": config, "retry": {"tries": 3, "min": "10ms", "max": "100ms", "then": "dead-letter"}}
    (file := folder / "orders.yaml").write_text(
        yaml.safe_dump({"name": "orders", "source": {"type": "outbox", "database": dsn}, "sink": sink, "state": dsn})
    )
    return file


def test_what_kafka_never_takes_is_parked_and_sent_again_once_that_is_mended(
    breakable_postgres: PostgresServer, tmp_path: Path, broker: Broker, kafka_authority: trustme.CA, capsys: Any
) -> None:
    dsn, topic, barred = breakable_postgres.create_database(), broker.create(config={"max.message.bytes": "20000"}), broker.create()
    later = f"{topic}-later"
    broker.forbid(barred)
    kafka_authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    assert main(["outbox", "init", dsn]) == 0
    file = written(tmp_path, dsn, broker)

    def values(of: str) -> list[str]:
        return [(record.value or b"").decode()[:9] for record in broker.records(of)]

    def told(*words: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["dead", words[0], str(file), *words[1:], "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    program = Program(tmp_path, file)
    try:
        with psycopg.connect(dsn) as writer:
            stash_many(writer, [(topic, "a", "a1"), (topic, "a", "a2" + "." * 50_000), (topic, "a", "a3"), (later, "b", "b1")])
            stash(writer, barred, "c", "c1")
            writer.execute(BAD_HEADERS.format(topic).encode())
            stash_many(writer, [(topic, f"o{n % 5}", f"{n:03}") for n in range(100)])
        until(lambda: "099" in values(topic), what=program.tail)
        with psycopg.connect(dsn) as writer:
            stash_many(writer, [(topic, f"o{n % 5}", f"{n:03}") for n in range(100, 150)])
        until(lambda: "149" in values(topic), what=program.tail)
        until(lambda: breakable_postgres.execute("select count(*) from outbox", dsn) == [(0,)], what=program.tail)
        assert sorted(values(topic)) == [*(f"{n:03}" for n in range(150)), "a1"]

        _, letters = told("list")
        assert [(one["key"]["key"], one["behind"]) for one in letters] == [
            ("a", False),
            ("a", True),
            ("b", False),
            ("c", False),
            ("d", False),
        ]
        reasons = [one["message"] for one in letters if not one["behind"]]
        expected = [
            "MSG_SIZE_TOO_LARGE",
            "UNKNOWN_TOPIC_OR_PART",
            "TOPIC_AUTHORIZATION_FAILED",
            "unequal number of header keys (1)",
        ]
        assert all(word in reason for word, reason in zip(expected, reasons, strict=True)), reasons
        _, [seen] = status(file)
        assert (seen["state"], seen["dead"], seen["error"], seen["position"]) == ("leading", 5, None, 156)

        broker.configure(topic, "max.message.bytes", "1000000")
        broker.allow(barred)
        broker.create(later)  # behind the two before it: who knows this one knows them
        code, outcomes = told("redrive", "all")
        assert (code, [one["outcome"] for one in outcomes]) == (1, ["sent", "sent", "sent", "sent", "failed"])
        assert [value for value in values(topic) if value.startswith("a")] == ["a1", "a2.......", "a3"]
        assert (values(later), values(barred)) == (["b1"], ["c1"])
        assert main(["dead", "drop", str(file), "all", "--yes"]) == 0
        with psycopg.connect(dsn) as writer:
            stash_many(writer, [(topic, "d", "d2"), (topic, "a", "a4")])
        until(lambda: {"d2", "a4"} <= {*values(topic)}, what=program.tail)
        assert program.terminate() == 0
        assert "app-secret" not in program.said()
    finally:
        program.kill_tree()
