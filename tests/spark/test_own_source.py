"""An expression that raises on one row of a table that a pipeline has for itself: the query halts there and names the row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from filesink import FileSink, written
from restarted import Restarted

from deadline import PATIENCE
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.pipeline import Pipeline, Transform
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.mark.source import LANE, MarkSource

INSERT = """
insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values (now(), 'orders', %s, %s, '{}', '{}')
"""


@pytest.fixture
def source(postgres_of_module: str) -> MarkSource:
    assert databases.create(postgres_of_module, "outbox")
    with psycopg.connect(postgres_of_module) as writer:
        for key, value in (("a", "1"), ("b", "2"), ("c", "three"), ("d", "4")):
            writer.execute(INSERT, (key, value))
    return MarkSource(database=postgres_of_module)


@pytest.fixture
def query(spark: Any, source: MarkSource, tmp_path: Any) -> Iterator[Restarted]:
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    transform = Transform(where="after:value::double > 0")
    pipeline = Pipeline("own", source, FileSink(path=str(tmp_path / "out")), state, transform, folder=str(tmp_path))
    candidate = state.candidate("own", "test")
    term = candidate.campaign()
    assert term
    state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
    made = Restarted(spark, pipeline, str(tmp_path))
    made.start(term)
    yield made
    made.ask_to_stop()
    made.stop()
    candidate.resign()
    candidate.close()


def test_a_condition_that_raises_on_one_row_halts_there_and_names_it(query: Restarted, tmp_path: Any) -> None:
    assert query.wait(query.was_stopped_inside, PATIENCE)
    error = SqliteCoordinator(path=str(tmp_path / "state.db")).pipeline_state("own").error
    assert error
    assert error["code"] == "transform.invalid"
    assert "raised on change" in error["message"]
    assert '{"key":"c"}' in error["message"]
    assert [line[4] for line in written(tmp_path / "out")] == ['{"value":"1","headers":[]}', '{"value":"2","headers":[]}']
