"""What happens in the demo, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from threading import Event as Flag
from typing import Any

from penstock.change import from_batch
from penstock.demo import shop
from penstock.demo.audit import Verdict, judge
from penstock.demo.figures import Figures
from penstock.demo.stage import Stage
from penstock.source import ANONYMOUS, Span
from penstock.testing.oracle import deliveries
from penstock.testing.request import recorded

LOOK_SECONDS = 0.25
PATIENCE = 600.0
"""Seconds that the rest may take to arrive once the shop is closed, and the pipeline to meet a broken receiver."""


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the story: what it is called, what is said, its share of the time, and how the receiver behaves.

    Where that is broken the part lasts until the pipeline has met it, however slow the machine is: until its trouble has this sign.
    """

    name: str
    said: str
    share: float
    dials: Mapping[str, Any] = field(default_factory=dict)
    sign: str = ""

    @property
    def is_well(self) -> bool:
        """Whether the receiver takes what it is sent, and says so."""
        return not any(self.dials.values())


ACTS = (
    Act("flow", "The shop sells, ships and cancels. Every committed change reaches the receiver.", 0.38),
    Act(
        "lost answers",
        "The receiver takes a batch, then hangs up: nobody knows, so it is sent again.",
        0.05,
        {"lose_rate": 1.0},
    ),
    Act("outage", "The receiver answers 503 to everything. What is committed waits in the log.", 0.25, {"fail_rate": 1.0}, "503"),
    Act("repaired", "The receiver is back. First what has waited, in order; then what comes.", 0.32),
)
PROOF = Act("proof", "The shop is closed. The last changes arrive; then everything is compared.", 0)
WELL = {"lose_rate": 0.0, "fail_rate": 0.0, "statuses": [503]}
"""The receiver's dials where an act does not turn them."""


@dataclass(frozen=True, slots=True)
class View:
    """One moment, for the screen."""

    act: Act
    seconds: float
    committed: int
    figures: Figures
    trouble: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of it."""

    commits: int
    rollbacks: int
    retries: int
    figures: Figures
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether every verdict does."""
        return all(verdict.holds for verdict in self.verdicts)


class Story:
    """Plays the acts on a stage, and judges at the end."""

    def __init__(self, stage: Stage, seconds: float, is_endless: bool, stop: Flag) -> None:
        self._stage, self._seconds, self._is_endless, self._stop = stage, seconds, is_endless, stop
        self._figures = Figures()
        self._began = time.monotonic()

    def acts(self) -> Iterator[View]:
        """Act after act, a view at every look, until it is over or somebody asks to stop."""
        self._began = time.monotonic()
        for act in cycle(ACTS) if self._is_endless else ACTS:
            if self._stop.is_set():
                return
            yield from self._play(act)

    def rest(self) -> Iterator[View]:
        """The shop closes; until everything has arrived."""
        self._stage.shop.close()
        self._turn(PROOF)
        deadline = time.monotonic() + PATIENCE
        while (view := self._look(PROOF)).figures.backlog and time.monotonic() < deadline:
            yield view
            time.sleep(LOOK_SECONDS)
        yield view

    def judge(self) -> Summary:
        """Compare what arrived with the shop's log and tables."""
        source, lane, place = self._stage.pipeline.source, self._stage.lane, self._stage.place
        span = Span(lane, source.begin(lane, "beginning"), source.head(lane))
        logged = [change for batch in source.read(span, ANONYMOUS) for change in from_batch(batch)]
        seen = deliveries(recorded(place.received))
        tables = {table: shop.rows(place.database, table) for table in shop.TABLES}
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
        """Turn the receiver's dials, and note when it broke and was repaired."""
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
