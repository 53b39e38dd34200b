"""From an outbox to Kafka, whatever breaks: nothing lost, each key in order, and exactly once nothing twice."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from relay import Clerks, Relay, RelayNemesis, judged

from servers.broker import Broker, Record
from servers.postgres import PostgresServer

STEPS = int(os.environ.get("PENSTOCK_NEMESIS_STEPS", "10"))


def test_kafka_has_every_message_and_each_key_in_order_whatever_is_broken(
    tmp_path: Path, breakable_postgres: PostgresServer, breakable_broker: Broker, note: Any
) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1 << 32))
    note(f"PENSTOCK_SEED={seed}")
    with Relay(tmp_path / f"relay{seed}", breakable_postgres, breakable_broker) as relay:
        nemesis, clerks = RelayNemesis(relay, seed), Clerks(relay, seed, rest=0.1)
        clerks.start()
        nemesis.torment(STEPS)
        clerks.stop()
        nemesis.heal()
        relay.until_settled()
        assert nemesis.end() == [0, 0], nemesis.tails()
        note(f"{sum(nemesis.counts.values())} steps: {dict(nemesis.counts.most_common())}; {relay.position} messages")
        assert [breach for found in relay.verdicts().values() for breach in found] == []


def came(*numbers: int) -> list[Record]:
    return [Record(0, place, b"k", None, [("number", str(number).encode())]) for place, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "oracle", "said"),
    [
        ((1, 2), "completeness", "k: 3 was lost"),
        ((1, 2, 3, 4), "completeness", "k: 4 was never committed"),
        ((1, 3, 2), "order", "k: 2 came first behind 3"),
        ((1, 2, 1, 2, 3), "once", "k: 1 came again"),
    ],
)
def test_each_oracle_tells_its_breach_and_no_other(numbers: tuple[int, ...], oracle: str, said: str) -> None:
    found = judged(came(*numbers), {"k": {1, 2, 3}}, is_exact=True)
    assert found[oracle][0] == said
    assert [name for name, breaches in found.items() if breaches] == [oracle]


def test_a_run_that_comes_again_is_no_breach_at_least_once() -> None:
    assert judged(came(1, 2, 1, 2, 3), {"k": {1, 2, 3}}, is_exact=False) == {"completeness": [], "order": []}
