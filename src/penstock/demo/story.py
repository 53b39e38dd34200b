"""The acts of the demo."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from threading import Event as Flag
from typing import Any

from penstock.change import from_batch
from penstock.demo import shop
from penstock.demo.audit import Audited, judge
from penstock.demo.figures import Figures
from penstock.demo.stage import Stage
from penstock.source import ANONYMOUS, Span
from penstock.testing.oracle import deliveries
from penstock.testing.request import Record

LOOK_SECONDS = 0.25
PATIENCE = 600.0
"""The limit in seconds for the delivery of the last changes, and for the detection of a failing receiver."""


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the demo: its name, its text, its share of the time, and the faults of the receiver.

    An act with faults lasts at least until the trouble of the pipeline contains `sign`.
    """

    name: str
    said: str
    share: float
    dials: Mapping[str, Any] = field(default_factory=dict)
    sign: str = ""

    @property
    def is_well(self) -> bool:
        """Whether the receiver works without faults."""
        return not any(self.dials.values())


ACTS = (
    Act("flow", "The shop sells, ships and cancels. Every committed change reaches the receiver.", 0.38),
    Act(
        "lost answers",
        "The receiver accepts a batch but loses its answer: the batch is sent again.",
        0.05,
        {"lose_rate": 1.0},
    ),
    Act("outage", "The receiver answers 503 to every request. Committed changes wait in the log.", 0.25, {"fail_rate": 1.0}, "503"),
    Act("repaired", "The receiver works again. The backlog arrives first, in order; then new changes.", 0.32),
)
PROOF = Act("proof", "The shop is closed. The last changes arrive, and all deliveries are checked.", 0)
WELL = {"lose_rate": 0.0, "fail_rate": 0.0, "statuses": [503]}
"""The faults of the receiver, switched off."""


@dataclass(frozen=True, slots=True)
class View:
    """The state of the demo at one time."""

    act: Act
    seconds: float
    committed: int
    figures: Figures
    trouble: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of the demo."""

    commits: int
    rollbacks: int
    retries: int
    figures: Figures
    verdicts: tuple[Audited, ...]

    @property
    def holds(self) -> bool:
        """Whether every verdict holds."""
        return all(verdict.holds for verdict in self.verdicts)


class Story:
    """Plays the acts on a stage, and judges the deliveries."""

    def __init__(self, stage: Stage, seconds: float, is_endless: bool, stop: Flag) -> None:
        self._stage, self._seconds, self._is_endless, self._stop = stage, seconds, is_endless, stop
        self._figures = Figures()
        self._began = time.monotonic()

    def acts(self) -> Iterator[View]:
        """The views of all acts, until a request to stop."""
        for act in cycle(ACTS) if self._is_endless else ACTS:
            if self._stop.is_set():
                return
            yield from self._play(act)

    def rest(self) -> Iterator[View]:
        """Close the shop; the views until all changes have arrived."""
        self._stage.shop.close()
        self._turn(PROOF)
        deadline = time.monotonic() + PATIENCE
        while (view := self._look(PROOF)).figures.backlog and time.monotonic() < deadline:
            yield view
            time.sleep(LOOK_SECONDS)
        yield view

    def judge(self) -> Summary:
        """Compare the deliveries with the log and the tables of the shop."""
        source, lane = self._stage.pipeline.source, self._stage.lane
        span = Span(lane, source.begin(lane, "beginning"), source.head(lane))
        logged = [change for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]
        seen = deliveries(Record(self._stage.received).requests())
        tables = {table: shop.rows(self._stage.database, table) for table in shop.TABLES}
        return Summary(
            commits=self._stage.shop.commits,
            rollbacks=self._stage.shop.rollbacks,
            retries=self._stage.carriage.retries,
            figures=self._figures,
            verdicts=judge(logged, seen, tables),
        )

    def _play(self, act: Act) -> Iterator[View]:
        self._turn(act)
        ends_at, is_met = time.monotonic() + act.share * self._seconds, act.is_well
        while time.monotonic() < ends_at + (0 if is_met else PATIENCE) and not self._stop.is_set():
            view = self._look(act)
            is_met = is_met or (view.trouble != "" and act.sign in view.trouble)
            yield view
            left = ends_at - time.monotonic()
            self._stop.wait(min(LOOK_SECONDS, left) if left > 0 else LOOK_SECONDS)

    def _turn(self, act: Act) -> None:
        """Set the faults of the receiver, and note the times of its outage."""
        outage = self._figures.outage
        if not act.is_well and (outage is None or outage.repaired_at):
            self._figures.broke(time.time())
        self._stage.receiver.turn(**{**WELL, **act.dials})
        if act.is_well:
            self._figures.repaired(time.time(), self._stage.head())

    def _look(self, act: Act) -> View:
        self._stage.carriage.check()
        committed = self._stage.head()
        for arrival in self._stage.arrivals.read():
            self._figures.take(arrival)
        self._figures.look(committed)
        return View(act, time.monotonic() - self._began, committed, self._figures, self._trouble())

    def _trouble(self) -> str:
        last = self._stage.carriage.last_retry
        if last is None or time.monotonic() - last[0] > 1.0 or not self._figures.backlog:
            return ""
        event = last[1]
        return f"{event.reason.partition('/: ')[2]}; try {event.tries} failed, next in {event.wait_seconds:.1f} s"
