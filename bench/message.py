"""A message from the outbox to a record of Kafka: its bytes in columns, in comparison with its JSON document."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import median

import pyarrow as pa

from bench.rig import Figure, at_most, keep
from penstock.change import Change, Op, from_batch, to_batch
from penstock.message import Message, documents, of_change

MESSAGES, BATCH, ROUNDS = 20_000, 1000, 9


def measure() -> list[Figure]:
    """Rounds of bytes, documents and bytes again in turn; the two of bytes are the A/A."""
    figures, raw = [], {}
    for name, value in (("text", _text), ("binary", _binary)):
        given = [Message("orders", b"k%d" % number, value(number), (("trace", b"abc"),)) for number in range(MESSAGES)]
        rounds = [(_seconds(given, _same), _seconds(given, documents), _seconds(given, _same)) for _ in range(ROUNDS + 1)][1:]
        figures.append(at_most(f"CPU, {name} as bytes / as a document", median(one[0] / one[1] for one in rounds), "x", 1.0))
        figures.append(Figure(f"CPU, {name} as bytes, A/A", median(one[0] / one[2] for one in rounds), "x"))
        raw[name] = rounds
    keep("message", figures, raw)
    return figures


def _text(number: int) -> bytes:
    return b'{"id":%d,"state":"paid","note":"%s"}' % (number, b"x" * 400)


def _binary(number: int) -> bytes:
    return b"\xff" + random.Random(number).randbytes(400)


def _same(changes: pa.RecordBatch) -> pa.RecordBatch:
    return changes


def _seconds(given: list[Message], form: Callable[[pa.RecordBatch], pa.RecordBatch]) -> float:
    """CPU seconds for all messages, which must arrive as they were given."""
    before = time.process_time()
    arrived = list(_sent(given, form))
    seconds = time.process_time() - before
    assert arrived == given
    return seconds


def _change(message: Message, position: int) -> Change:
    return Change(position, Op.INSERT, message.topic, message.key, after=message.value, headers=tuple(message.headers))


def _sent(given: list[Message], form: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Iterator[Message | None]:
    for begin in range(0, len(given), BATCH):
        batch = to_batch(_change(message, position) for position, message in enumerate(given[begin : begin + BATCH], begin))
        yield from map(of_change, from_batch(form(batch)))
