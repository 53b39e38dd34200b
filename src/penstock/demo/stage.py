"""The shop, capture, receiver and pipeline of the demo."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Self

from penstock.config import load
from penstock.demo import shop
from penstock.demo.figures import Arrivals
from penstock.errors import EngineFailed, PenstockError
from penstock.event import DeliveryRetried, Event, LaneClaimed, Led
from penstock.pipeline import Pipeline
from penstock.running.run import run
from penstock.sources.sqlite import install
from penstock.testing.receiver import ReceiverProcess

AUDITOR = "demo-audit"
"""A registered reader that prevents pruning before the audit."""

PIPELINE = """\
name: demo
source:
  type: sqlite
  database: shop.db
sink:
  type: webhook
  url: {url}
  retry: {{tries: forever, min: 100ms, max: 500ms}}
state: penstock.db
"""


class Stage:
    """Set up by `with`; the pipeline and the shop are started separately."""

    def __init__(self, folder: Path, rate: float) -> None:
        self.folder, self.database, self.received = folder, str(folder / "shop.db"), folder / "received.jsonl"
        self.arrivals = Arrivals(self.received)
        self.shop = shop.Shop(self.database, rate)
        self.receiver = ReceiverProcess(self.received)

    def __enter__(self) -> Self:
        shop.create(self.database)
        install.enable(self.database, wal=True)
        self._start_receiver()
        file = self.folder / "pipeline.yaml"
        file.write_text(PIPELINE.format(url=self.receiver.url))
        self.pipeline = load(file)
        self.lane = self.pipeline.source.lanes()[0]
        assert self.pipeline.source.retention, "a SQLite source has retention"
        self.pipeline.source.retention.settle(AUDITOR, self.lane, self.pipeline.source.begin(self.lane, "beginning"))
        self.carriage = Carriage(self.pipeline)
        return self

    def __exit__(self, *_: object) -> None:
        self.shop.close()
        self.carriage.close()
        self.receiver.stop()

    def _start_receiver(self) -> None:
        """Start the receiver with SIGINT ignored, which it inherits: it must outlive the pipeline after Ctrl-C."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.receiver.start()
        finally:
            signal.signal(signal.SIGINT, before)

    def head(self) -> int:
        """The number of committed changes: positions in the log are dense and start at 1."""
        return self.pipeline.source.position(self.pipeline.source.head(self.lane))


class Carriage(Thread):
    """`penstock.run` in a thread, with the facts of its events."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(name="pipeline", daemon=True)
        self.leads = self.delivers = False
        self.retries = 0
        self.last_retry: tuple[float, DeliveryRetried] | None = None
        self._pipeline, self._stop_asked = pipeline, Flag()
        self._error: PenstockError | None = None

    def run(self) -> None:
        """Run the pipeline until closed."""
        try:
            run(self._pipeline, stop=self._stop_asked, observer=self._on_event)
        except PenstockError as error:
            self._error = error

    def check(self) -> None:
        """Raise the error of the pipeline if it has ended."""
        if self._error:
            raise self._error
        if not self.is_alive() and not self._stop_asked.is_set():
            raise EngineFailed("the pipeline ended without an error")

    def close(self) -> None:
        """Stop the pipeline after it has recorded its progress."""
        self._stop_asked.set()
        if self.is_alive():
            self.join()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Led):
            self.leads = True
        elif isinstance(event, LaneClaimed):
            self.delivers = True
        elif isinstance(event, DeliveryRetried):
            self.retries += 1
            self.last_retry = (time.monotonic(), event)
