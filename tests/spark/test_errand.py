"""What an errand says to those who only plan."""

import subprocess
import sys
from dataclasses import replace
from itertools import islice

from penstock.config import parse
from penstock.coordinator import Term
from penstock.event import ChangeParked
from penstock.spark import bundles
from penstock.spark.errand import Errand, Events
from penstock.spark.plan import planned

HEAVY = ("psycopg", "confluent_kafka", "pyarrow", "penstock.sources.outbox", "penstock.sinks.kafka", "penstock.pipeline")


def errand(**given):
    source = {"type": "outbox", "database": "postgresql://nobody@127.0.0.1:1/nothing"}
    sink = {"type": "kafka", "config": {"bootstrap.servers": "127.0.0.1:1"}}
    pipeline = parse({"name": "orders", "source": source, "sink": sink})
    return Errand(pipeline, Term("orders", "me", 1), "folder", "query", 300.0, **given)


def test_a_process_that_only_plans_loads_neither_clients_nor_arrow_nor_the_pipeline():
    script = "import sys; from penstock.spark.source import PenstockSource as S; s = S({'errand': sys.argv[1]});"
    script += "s.streamWriter(s.schema(), False); r = s.streamReader(s.schema());"
    script += "print(type(r).__name__, [p.lane for p in r.partitions({}, {})], *(set(sys.argv[2:]) & set(sys.modules)))"
    command = [sys.executable, "-c", script, errand().encode(), *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "LiveReader ['outbox']"


def test_an_errand_comes_back_whole():
    sent = errand(goal={"outbox": "{}"})
    assert planned(sent.encode()) == ("batch", ["outbox"], bundles.DDL)
    assert Errand.decode(sent.encode()) == sent


def test_many_events_come_in_order_though_the_driver_looks_only_later(tmp_path):
    told = [_parked(position) for position in range(100)]
    heard = Events(str(tmp_path))
    replace(errand(), folder=str(tmp_path)).tell_all(told)
    assert list(islice(heard, len(told))) == told


def _parked(position):
    return ChangeParked(
        pipeline="orders", position=position, table="t", key='{"id":1}', code="delivery.exhausted", message="no\n" * 50
    )
