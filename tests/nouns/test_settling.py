"""What a running pipeline says of others that share its log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event as Flag

import pytest

from penstock.config import parse
from penstock.cursor import Watermark
from penstock.event import _KINDS, Event, LogHeld, ReaderReleased, from_line, to_line
from penstock.log import _SENTENCES, text_line
from penstock.pipeline import Pipeline
from penstock.running import PipelineRun
from penstock.sources import retain
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.source import LANE


def test_every_event_has_a_sentence() -> None:
    assert set(_SENTENCES) == set(_KINDS.values())


def shared(folder: Path, then: str) -> Pipeline:
    """A pipeline that has delivered ten changes of a log on which another one stopped at the third."""
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table orders(id integer primary key)")
        enable(str(folder / "shop.db"))
        for _ in range(10):
            connection.execute("insert into orders default values")
    source = {"type": "sqlite", "database": "shop.db", "retain": {"changes": 5, "then": then}}
    pipeline = parse({"name": "orders", "source": source, "sink": {"type": "discard"}}, folder)
    pipeline.source.register("audit", LANE, pipeline.source.begin(LANE, "3"))
    with closing(pipeline.state.candidate("orders", "me")) as candidate:
        term = candidate.campaign()
        assert term
        pipeline.state.place(term, LANE, Watermark(pipeline.source.head(LANE), 10))
    return pipeline


@pytest.mark.parametrize(("then", "kind"), [("keep", LogHeld), ("release", ReaderReleased)])
def test_it_says_once_that_another_one_is_gone_for_too_long_or_was_released(
    tmp_path: Path, then: str, kind: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retain, "GONE", 0.0)
    heard: list[Event] = []
    run = PipelineRun(shared(tmp_path, then), None, Flag(), heard.append)
    for _ in range(3):
        run._settle()
    [event] = (event for event in heard if isinstance(event, LogHeld | ReaderReleased))
    assert isinstance(event, kind)
    assert (event.pipeline, event.reader, event.position) == ("orders", "audit", 3)
    assert from_line(to_line(event)) == event
    said = text_line(event, datetime.now(UTC))
    assert ("7 changes are kept for audit" if then == "keep" else "audit was released at position 3") in said
