"""How soon a lone change is there, and how soon idle, busy and blocked parts answer: the bounds that no test judges."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

from bench.rig import Figure, at_most, has_claimed, keep, penstock_run, quantile, row, shop, wait_until
from penstock import following
from penstock.change import Change, Lane, Op, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.following import follow
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.webhook.sink import WebhookSink
from penstock.source import ANONYMOUS
from penstock.sources.sqlite.source import LANE, SqliteSource
from penstock.testing.receiver import Receiver, ReceiverProcess
from servers.broker import Broker

TIMES, APART = 40, 0.3
MINUTE = timedelta(minutes=1)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raw = {
            "lone change, commit to window": _lone_in_the_source(folder / "source"),
            "lone change, commit to receiver": _lone_on_the_path(folder / "path"),
            "idle source, between two windows": _signs_of_life(folder / "idle"),
            "registering while another prunes": _registering(folder / "pruned"),
            **_closing_a_webhook(),
            **_hanging_brokers(folder / "kafka"),
        }
    figures = [figure for name, (bar, found) in raw.items() for figure in _figures(name, [one * 1000 for one in found], bar)]
    keep("promptness", figures, raw)
    return figures


Measured = tuple[float, list[float]]
"""A bar in milliseconds for the median, and seconds."""


def _figures(name: str, found: Sequence[float], bar: float) -> list[Figure]:
    if len(found) == 1:
        return [at_most(name, found[0], "ms", bar)]
    return [at_most(f"{name}, p50", quantile(found, 0.5), "ms", bar), Figure(f"{name}, p99", quantile(found, 0.99), "ms")]


def _seconds(deed: Callable[[], Any]) -> float:
    began = time.monotonic()
    deed()
    return time.monotonic() - began


def _lone_in_the_source(folder: Path) -> Measured:
    """With a beat of a second: a source that waits for its beat is late by half of it."""
    beat, following.BEAT = following.BEAT, 1.0
    try:
        return 250, _followed(folder)
    finally:
        following.BEAT = beat


def _followed(folder: Path) -> list[float]:
    shop(folder, "{type: discard}").close()
    source, committed, late = SqliteSource(database=str(folder / "shop.db")), list[float](), list[float]()
    writer = Thread(target=_commit, args=(folder / "shop.db", committed))
    windows = follow(source, LANE, source.head(LANE), ANONYMOUS)
    next(windows)
    writer.start()
    while len(late) < TIMES:
        window = next(windows)
        late += [time.time()] * window.changes.num_rows
    writer.join()
    return [seen - made for seen, made in zip(late, committed, strict=True)]


def _commit(database: Path, committed: list[float]) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for number in range(1, TIMES + 1):
            time.sleep(APART)
            connection.execute("insert into orders values (?,?,?,?,?,?,?)", row(number))
            committed.append(time.time())


def _lone_on_the_path(folder: Path) -> Measured:
    folder.mkdir()
    with ReceiverProcess(folder / "requests") as receiver:
        shop(folder, f"{{type: webhook, url: '{receiver.url}'}}").close()
        with penstock_run(folder):
            wait_until(lambda: has_claimed(folder), 60)
            committed: list[float] = []
            _commit(folder / "shop.db", committed)
            wait_until(lambda: len(receiver.requests) >= TIMES, 30)
        came = {change["key"]["id"]: request.at for request in receiver.requests for change in request.changes()}
    return 250, [came[number] - made for number, made in enumerate(committed, 1)][TIMES // 4 :]


def _signs_of_life(folder: Path) -> Measured:
    shop(folder, "{type: discard}").close()
    source = SqliteSource(database=str(folder / "shop.db"))
    windows = follow(source, LANE, source.head(LANE), ANONYMOUS)
    next(windows)
    seen = [time.monotonic() for _ in islice(windows, TIMES)]
    return 50, [after - before for before, after in pairwise(seen)]


def _registering(folder: Path) -> Measured:
    """A pipeline begins while another one settles a log of which nearly all can go."""
    database = shop(folder, "{type: discard}", rows=1000)
    for turn in range(100):
        database.execute("update orders set status = ?", (f"turn {turn}",))
    source, is_over = SqliteSource(database=str(folder / "shop.db")), Event()
    head = source.head(LANE)

    def prune() -> None:
        while not is_over.is_set():
            source.retention.settle("busy", LANE, head)

    pruning = Thread(target=prune)
    pruning.start()
    try:
        return 100, [
            _seconds(lambda number=number: source.retention.register(f"late {number}", LANE, head)) for number in range(TIMES)
        ]
    finally:
        is_over.set()
        pruning.join()


def _assignment(has_messages: bool) -> Assignment:
    return Assignment("bench", Lane("main"), 1, 0, "cafe", None, lambda event: None, has_messages=has_messages)


def _closing_a_webhook() -> dict[str, Measured]:
    """Between two tries that are a minute apart, and while a receiver is silent, beyond the timeout of three seconds."""
    changes, found = to_batch([Change(1, Op.INSERT, "bench", b"k", after=b"v")]), {}
    with Receiver() as receiver:
        for name, dials, timeout in (("between two tries", {"fail_rate": 1}, 60), ("at a silent receiver", {"hang_rate": 1}, 3)):
            receiver.reset()
            receiver.turn(fail_rate=0, hang_rate=0)
            receiver.turn(**dials)
            sink = WebhookSink(url=receiver.url, timeout=timedelta(seconds=timeout), retry=Retry(min=MINUTE, max=MINUTE))
            delivery = sink.open(_assignment(has_messages=False))
            delivery.offer(changes, 1)
            receiver.wait_for(lambda: len(receiver.requests) >= 1, 30)
            over = timeout if "hang_rate" in dials else 0
            found[f"closing a webhook {name}"] = (1000.0, [max(0.0, _seconds(delivery.close) - over)])
    return found


def _hanging_brokers(folder: Path) -> dict[str, Measured]:
    """Offering, and closing with a transaction under way."""
    with Broker(folder) as broker:
        topic = broker.create()
        delivery: Any = KafkaSink(config={"bootstrap.servers": broker.servers}, topic=topic).open(_assignment(has_messages=True))
        _put(delivery, topic, 1)
        wait_until(delivery.delivered, 60)
        broker.pause()
        try:
            offers = [_seconds(lambda position=position: _put(delivery, topic, position)) for position in range(2, TIMES + 2)]
            closed = _seconds(delivery.close)
        finally:
            broker.resume()
    return {"offering while brokers hang": (100, offers), "closing while brokers hang": (30_000, [closed])}


def _put(delivery: Any, topic: str, position: int) -> None:
    delivery.offer(to_batch([Change(position, Op.INSERT, topic, b"k", after=b"v")]), 0.05)
    delivery.mark(Watermark(Cursor(f'"{position}"'), position, position))
