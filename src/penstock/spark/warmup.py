"""A discarded query over the whole path: the first query of a session takes seconds, later ones do not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from typing import Any

from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.pipeline import Pipeline, Transform
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.query import Query

_CHANGES = 2000
_WHERE = "table = 'synthetic' and try_variant_get(after, '$.total', 'double') >= 0 and op in ('insert', 'update')"


def warm(spark: Any, folder: str, is_enough: Callable[[], bool] = lambda: False) -> None:
    """Deliver generated changes to a discarding sink; returns early once `is_enough`."""
    own = tempfile.mkdtemp(prefix="warm-up-", dir=folder)  # without a socket for events
    source = SyntheticSource(total=_CHANGES, rate=1e6)
    state = SqliteCoordinator(path=f"{own}/state.db")
    pipeline = Pipeline("warm-up", source, DiscardSink(), state, Transform(where=_WHERE))
    with closing(state.candidate(pipeline.name, "warm-up")) as candidate:
        term = candidate.campaign()
        assert term is not None
        state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        query = Query(spark, pipeline, own)
        query.start(term)
        query.wait(lambda: state.pipeline_state(pipeline.name).watermarks[LANE].position >= _CHANGES or is_enough())
        query.stop()
