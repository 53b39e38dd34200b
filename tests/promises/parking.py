"""A pipeline to Kafka over TLS and with a password, and messages that Kafka will never take."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import psycopg
import trustme
import yaml

from deadline import until
from fix_rig import TERM
from penstock.cli import main
from penstock.outbox import stash, stash_many
from program import Program, status
from servers.broker import Broker
from servers.postgres import PostgresServer

PASSWORD = "app-secret"
BAD_HEADERS = """
alter table outbox drop constraint outbox_headers_check;
insert into outbox (topic, key, value, header_keys, header_values) values ('{}', 'd', 'd1', array['a'], array['x', 'y']::bytea[])
"""


class Parking:
    """An outbox whose topics are too small, missing, or forbidden; what is done about it, and what was seen of it."""

    def __init__(self, folder: Path, server: PostgresServer, broker: Broker, authority: trustme.CA) -> None:
        self._server, self._broker, self.dsn = server, broker, server.create_database()
        self.topic, self.barred = broker.create(config={"max.message.bytes": "20000"}), broker.create()
        self.later = f"{self.topic}-later"
        broker.forbid(self.barred)
        assert main(["outbox", "init", self.dsn]) == 0
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        (folder / "kafka.password").write_text(f"{PASSWORD}\n")
        (file := folder / "parking.yaml").write_text(yaml.safe_dump(self._content()))
        self.file = file
        self.came, self.letters, self.seen = list[str](), list[dict[str, Any]](), dict[str, Any]()
        self.redriven: tuple[int, list[Any]] = (0, [])
        self.mended: dict[str, list[str]] = {}

    def values(self, topic: str) -> list[str]:
        return [(record.value or b"").decode()[:9] for record in self._broker.records(topic)]

    def park(self, program: Program) -> None:
        """Messages that are refused, each for another reason, among a hundred and fifty that are taken."""
        with psycopg.connect(self.dsn) as writer:
            mine = [("a", "a1"), ("a", "a2" + "." * 50_000), ("a", "a3")]
            stash_many(writer, [*((self.topic, *one) for one in mine), (self.later, "b", "b1")])
            stash(writer, self.barred, "c", "c1")
            writer.execute(BAD_HEADERS.format(self.topic).encode())
        for begin, end in ((0, 100), (100, 150)):
            with psycopg.connect(self.dsn) as writer:
                stash_many(writer, [(self.topic, f"o{n % 5}", f"{n:03}") for n in range(begin, end)])
            until(lambda last=f"{end - 1:03}": last in self.values(self.topic), what=program.tail)
        until(lambda: self._server.execute("select count(*) from outbox", self.dsn) == [(0,)], what=program.tail)
        self.came, self.letters = self.values(self.topic), self._answered("list")[1]
        _, [self.seen] = status(self.file)

    def mend(self, program: Program) -> None:
        """Remove the reasons, send the letters again, drop the one that stays, and write to the same keys."""
        self._broker.configure(self.topic, "max.message.bytes", "1000000")
        self._broker.allow(self.barred)
        self._broker.create(self.later)  # after the two others: a broker that knows this one knows them
        self.redriven = self._answered("redrive", "all")
        self.mended = {topic: self.values(topic) for topic in (self.topic, self.later, self.barred)}
        assert main(["dead", "drop", str(self.file), "all", "--yes"]) == 0
        with psycopg.connect(self.dsn) as writer:
            stash_many(writer, [(self.topic, "d", "d2"), (self.topic, "a", "a4")])
        until(lambda: {"d2", "a4"} <= {*self.values(self.topic)}, what=program.tail)

    def _answered(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        with redirect_stdout(io.StringIO()) as out:
            code = main(["dead", words[0], str(self.file), *words[1:], "--json"])
        return code, [json.loads(line) for line in out.getvalue().splitlines()]

    def _content(self) -> dict[str, Any]:
        config = {
            "bootstrap.servers": self._broker.encrypted,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "ca.pem",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": "${file:kafka.password}",
            "topic.metadata.propagation.max.ms": 500,
            "batch.size": 10_000,
        }
        sink = {"type": "kafka", "config": config, "retry": {"tries": 3, "min": "10ms", "max": "100ms", "then": "dead-letter"}}
        source = {"type": "outbox", "database": self.dsn}
        return {"name": "parking", "source": source, "sink": sink, "state": f"{self.dsn}?connect_timeout=60", "term": TERM}
