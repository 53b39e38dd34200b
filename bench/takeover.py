"""How long nobody leads, and nobody delivers, when a leader dies or falls silent; for each place where the state may be."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from bench.consumer import Listening
from bench.pair import Pair
from bench.rig import Figure, at_most, keep, quantile, row, shop
from penstock.config import load
from penstock.outbox import stash_many
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.testing.receiver import ReceiverProcess
from servers.broker import Broker
from servers.postgres import PostgresServer

TIMES = 5


def measure() -> list[Figure]:
    """From the signal to the next term, and to its first change at the far side; changes are made all the time."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        raw = {"a file": _taken_over(folder / "file", shop_to_webhook(folder / "file"))}
        server, broker = stack.enter_context(PostgresServer()), stack.enter_context(Broker(folder / "kafka"))
        for place, state in (("Postgres", None), ("Kafka", f"kafka://{broker.servers}/penstock.state?session-timeout=6s")):
            raw[place] = _taken_over(folder / place, outbox_to_kafka(folder / place, server, broker, state))
    figures = [figure for place, found in raw.items() for figure in _figures(place, found)]
    keep("takeover", figures, raw)
    return figures


def _taken_over(folder: Path, pipeline: AbstractContextManager[Pair]) -> dict[str, Any]:
    with pipeline as pair:
        stops, kills = [pair.stopped() for _ in range(TIMES)], [pair.killed() for _ in range(TIMES)]
        return {"kill -9": kills, "SIGSTOP": stops, "ttl": load(folder / "pipeline.yaml").state.ttl}


def _figures(place: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    """A group of Kafka knows of a death only when the session is over; files and sessions of Postgres tell at once."""
    ttl = found["ttl"]
    yield Figure(f"state in {place}: length of a term", ttl, "s")
    for death, most in (("kill -9", ttl + 1 if place == "Kafka" else 2), ("SIGSTOP", ttl + 2)):
        led, delivered = zip(*found[death], strict=True)
        name = f"state in {place}: {death} to"
        yield Figure(f"{name} the next term, median", quantile(led, 0.5), "s")
        yield at_most(f"{name} the first change, median", quantile(delivered, 0.5), "s", most)
        yield Figure(f"{name} the first change, worst", max(delivered), "s")


@contextmanager
def shop_to_webhook(folder: Path) -> Iterator[Pair]:
    """State in a file."""
    folder.mkdir()
    with ReceiverProcess(folder / "requests") as receiver:
        database, numbers = shop(folder, f"{{type: webhook, url: '{receiver.url}'}}"), count(1)

        def change() -> None:
            database.execute("insert into orders values (?,?,?,?,?,?,?)", row(next(numbers)))

        with Pair(folder, change, lambda: [request.at for request in receiver.requests]) as pair:
            yield pair


@contextmanager
def outbox_to_kafka(folder: Path, server: PostgresServer, broker: Broker, state: str | None) -> Iterator[Pair]:
    """Exactly once; state in the same Postgres, if nowhere else."""
    folder.mkdir()
    dsn, topic, numbers = server.create_database(), broker.create(), count(1)
    init(dsn, Names("outbox"))
    sink = f"{{type: kafka, config: {{bootstrap.servers: '{broker.servers}'}}}}"
    source = f"{{type: outbox, database: '{dsn}'}}"
    (folder / "pipeline.yaml").write_text(f"name: {topic}\nsource: {source}\nsink: {sink}\nstate: '{state or dsn}'\n")
    with psycopg.connect(dsn, autocommit=True) as database, Listening(broker.servers, topic) as listening:

        def change() -> None:
            stash_many(database, [(topic, "one", b"%010d" % next(numbers))])

        with Pair(folder, change, listening.arrivals) as pair:
            yield pair
