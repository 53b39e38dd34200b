"""Messages on their way through Spark: bytes for the function and the sink, documents for expressions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

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
insert into outbox (kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
values ('orders', ?, ?, '["trace"]', '["abc"]')
"""
RULES = """
def show(change):
    return change.replace(after=repr((change.key, change.after, change.headers)).encode(), headers={"seen": "yes"})
"""


@pytest.mark.parametrize("where", [None, "try_variant_get(key, '$.key', 'string') <> 'c'"], ids=["function", "where and function"])
def test_a_function_sees_bytes_and_headers_of_messages(spark: Any, tmp_path: Path, where: str | None) -> None:
    source = MarkSource(database=str(tmp_path / "shop.db"))
    databases.create(source.database, "outbox")
    with closing(sqlite3.connect(source.database)) as writer, writer:
        writer.executemany(INSERT, [("a", b"\x00\xff"), ("b", "text"), ("c" if where else "d", "last")])
    (tmp_path / "shown_rules.py").write_text(RULES)
    state = SqliteCoordinator(path=str(tmp_path / "state.db"))
    transform = Transform(where=where, function="shown_rules:show")
    pipeline = Pipeline("shown", source, FileSink(path=str(tmp_path / "out")), state, transform, folder=str(tmp_path))
    with closing(state.candidate("shown", "test")) as candidate:
        term = candidate.campaign()
        assert term
        state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        query = Restarted(spark, pipeline, str(tmp_path))
        query.start(term)
        expected = [(b"a", b"\x00\xff"), (b"b", b"text"), *([] if where else [(b"d", b"last")])]
        assert query.wait(lambda: len(written(tmp_path / "out")) >= len(expected), PATIENCE)
        query.ask_to_stop()
        query.stop()
    shown = [repr((*pair, (("trace", b"abc"),))).encode() for pair in expected]
    assert [line[4] for line in written(tmp_path / "out")] == list(map(str, shown))
