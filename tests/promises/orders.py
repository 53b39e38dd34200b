"""Messages that an application stashes in Postgres, before and after a restart of it, and a receiver that they come to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import yaml

from deadline import until
from fix_rig import QUICK, TERM
from penstock.cli import main
from penstock.outbox import stash, stash_many
from penstock.testing import oracle
from penstock.testing.receiver import ReceiverProcess
from program import Program, status
from servers.postgres import PostgresServer


class Orders:
    """An outbox in Postgres, and a receiver; its state is in a file."""

    def __init__(self, folder: Path, server: PostgresServer, receiver: ReceiverProcess) -> None:
        self._server, self._receiver, self.dsn = server, receiver, server.create_database()
        assert main(["outbox", "init", self.dsn]) == 0
        self.file, self.seen, self.began, self.claims = folder / "orders.yaml", dict[str, Any](), 0.0, 0
        source = {"type": "outbox", "database": self.dsn, "table": "outbox", "reader": "snapshot"}
        sink = {"type": "webhook", "url": receiver.url, "timeout": "60s", "retry": QUICK}
        self.file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, "state": "state.db", "term": TERM}))

    def came(self) -> list[oracle.Delivery]:
        return oracle.deliveries(self._receiver.requests)

    def values(self) -> list[Any]:
        return [(one.change.get("after") or {}).get("value") for one in self.came()]

    def before_the_restart(self, program: Program) -> None:
        """Three messages, and one of a transaction that commits after the others."""
        with psycopg.connect(self.dsn) as late, psycopg.connect(self.dsn) as writer:
            stash(late, "orders", "7", "late")
            stash(writer, "orders", "1", {"n": 1}, {"trace": "abc"})
            stash(writer, "files", b"\xff", b"\x00\xff")
            stash(writer, "orders", "1", None)
            writer.commit()
            until(lambda: len(self.came()) >= 3, what=program.tail)
            late.commit()
        until(lambda: "late" in self.values(), what=program.tail)

    def after_the_restart(self, program: Program) -> None:
        """Fifty messages, the first half of them one by one, and one that is rolled back."""
        self.began, claims = time.time(), _claims(program)
        with psycopg.connect(self.dsn) as writer:
            for number in range(25):
                stash(writer, "orders", str(number % 5), f"v{number}")
                writer.commit()
                until(lambda number=number: f"v{number}" in self.values(), what=program.tail)
            stash_many(writer, [("orders", str(n % 5), f"v{n}") for n in range(25, 50)])
            writer.commit()
            stash(writer, "orders", "0", "rolled back")
            writer.rollback()
        until(lambda: "v49" in self.values(), what=program.tail)
        until(lambda: self._server.execute("select count(*) from outbox", self.dsn) == [(0,)], what=program.tail)
        self.claims = 1 + _claims(program) - claims
        code, [self.seen] = status(self.file)
        assert code == 0


def _claims(program: Program) -> int:
    return len([one for one in program.events("LaneClaimed") if one["pipeline"] == "orders"])
