"""A harvest in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any
from uuid import UUID, uuid4

from penstock import config as pipelines
from penstock.event import Delivered, Event, InFlight, LaneReleased, Led, MessagesReturned, Observer, Restarted, TermGone
from penstock.harvest import translation, works
from penstock.harvest.config import HarvestConfig, S, parse
from penstock.harvest.event import HarvestEvent, LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, Meter, MeterRead
from penstock.running.pipeline_run import PipelineRun
from penstock.spark.engine import Engine

TICK = 0.1


class State(Enum):
    """The state of a harvest; a harvest can be started once."""

    CREATED = "created"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Harvest:
    """Delivers an outbox to Kafka while it leads. The harvests of a process share one Spark session.

    `on_event` receives the events of goharvest, in a thread of the harvest; `observer` receives those of Penstock.
    """

    def __init__(
        self,
        config: HarvestConfig | Mapping[str, Any] | None = None,
        on_event: Callable[[HarvestEvent], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.config = config if isinstance(config, HarvestConfig) else parse({"harvest": config or {}}, "the harvest").harvest
        self.pipeline = pipelines.parse(translation.pipeline(self.config))
        self._on_event, self._observe = on_event, observer
        self._state, self._turn, self._stop = State.CREATED, RLock(), Flag()
        self._leader_id: UUID | None = None
        self._in_flight = (0, 0)
        self._error: Exception | None = None
        self._meter: Meter | None = None
        self._thread = Thread(target=self._run, name=f"harvest {self.config.name}", daemon=True)

    @property
    def state(self) -> State:
        """The state of the harvest."""
        return self._state

    @property
    def leader_id(self) -> UUID | None:
        """The id of its leadership; None while it does not lead."""
        return self._leader_id

    @property
    def is_leader(self) -> bool:
        """Whether it leads."""
        return self._leader_id is not None

    @property
    def in_flight_records(self) -> int:
        """The number of records that are sent and not purged."""
        return self._in_flight[0]

    @property
    def in_flight_keys(self) -> int:
        """The number of keys of those records: a key has at most one record in flight."""
        return self._in_flight[1]

    def set_event_handler(self, on_event: Callable[[HarvestEvent], None]) -> None:
        """Set the handler of events. Raises RuntimeError after the start."""
        self._expect(State.CREATED)
        self._on_event = on_event

    def start(self) -> None:
        """Start to compete for leadership. Raises RuntimeError if the harvest was started or stopped before."""
        with self._turn:
            self._expect(State.CREATED)
            self._state = State.RUNNING
            self._thread.start()

    def stop(self) -> None:
        """Request the end of the harvest, for which `wait` waits. Idempotent."""
        with self._turn:
            if self._state is State.CREATED:
                self._state = State.STOPPED
            elif self._state is State.RUNNING:
                self._state = State.STOPPING
            self._stop.set()

    def wait(self, within: float | None = None) -> bool:
        """Wait for the end; False after a timeout. Raises the error of the harvest."""
        if self._thread.ident:
            self._thread.join(within)
        if self._error:
            raise self._error
        return self._state is State.STOPPED

    def _run(self) -> None:
        try:
            run = PipelineRun(self.pipeline, None, self._stop, self._receive)

            def receive(event: Event) -> None:
                run.on_event(event)
                self._receive(event)

            with works.joined(self.pipeline, receive) as engine, run.entered():
                self._watch(run, engine)
        except Exception as error:  # noqa: BLE001 - the entry of a thread: `wait` raises every error
            self._error = error
        finally:
            with self._turn:
                self._leader_id, self._in_flight, self._state = None, (0, 0), State.STOPPED

    def _watch(self, run: PipelineRun, engine: Engine) -> None:
        carrying = Thread(target=run.run, args=(engine,), name=f"pipeline {self.pipeline.name}", daemon=True)
        self._meter = Meter(self.config.name, self.config.limits.min_metrics_interval / S, time.time())
        carrying.start()
        while carrying.is_alive():
            carrying.join(TICK)
            if self.is_leader and (stats := self._meter.read(time.time())):
                self._say(MeterRead(stats))
        if run.error:
            raise run.error

    def _receive(self, event: Event) -> None:
        """Report an event of this pipeline as an event of goharvest."""
        if event.pipeline != self.pipeline.name:
            return
        if isinstance(event, Led):
            self._leader_id = uuid4()
            self._say(LeaderAcquired(self._leader_id))
        elif isinstance(event, MessagesReturned | Restarted) and self.is_leader:
            self._leader_id = uuid4()
            self._say(LeaderRefreshed(self._leader_id))
        elif isinstance(event, TermGone):
            self._leader_id, self._in_flight = None, (0, 0)
            self._say(LeaderFenced() if event.fenced else LeaderRevoked())
        elif self.is_leader:  # otherwise another harvest of this process delivers
            self._count(event)
        if self._observe:
            self._observe(event)

    def _count(self, event: Event) -> None:
        if isinstance(event, InFlight):
            self._in_flight = event.records, event.keys
        elif isinstance(event, LaneReleased):
            self._in_flight = 0, 0
        elif isinstance(event, Delivered) and self._meter:
            self._meter.add(event.changes)

    def _say(self, event: HarvestEvent) -> None:
        if not self._on_event:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - from the function of the user: it ends the harvest, and `wait` raises it
            self._error = self._error or error
            self._stop.set()

    def _expect(self, state: State) -> None:
        if self._state is not state:
            raise RuntimeError(f"the harvest is {self._state.value}: it must be {state.value}")
