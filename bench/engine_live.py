"""One run of the engine in live mode."""

from __future__ import annotations

import sys
import tempfile
import time

from bench.engine import RATE, SECONDS, SIZE, WHERE
from bench.lateness import LatenessSink
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.cursor import Watermark
from penstock.pipeline import Pipeline, Transform
from penstock.sources.synthetic import LANE, SyntheticSource
from penstock.spark.query import Query
from penstock.spark.session import open_session
from penstock.spark.warmup import warm


def main(out: str) -> None:
    spark = open_session(slots=1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        warm(spark, folder)
        source = SyntheticSource(rate=RATE, size=SIZE, total=RATE * SECONDS, origin=time.time() + 3)
        state = SqliteCoordinator(path=f"{folder}/state.db")
        pipeline = Pipeline("engine", source, LatenessSink(path=out), state, Transform(where=WHERE))
        candidate = state.candidate("engine", "bench")
        term = candidate.campaign()
        assert term
        state.place(term, {LANE: Watermark(source.begin(LANE, "beginning"), 0)})
        query = Query(spark, pipeline, folder)
        query.start(term)
        query.wait(lambda: state.watermark("engine", LANE).position >= source.total, SECONDS + 60)
        query.ask_to_stop()
        time.sleep(1)
        query.stop()
        candidate.close()


if __name__ == "__main__":
    main(sys.argv[1])
