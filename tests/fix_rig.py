"""The whole path under test: a shop, a receiver, one pipeline file, and as many processes on it as a test wants."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest
import yaml

from deadline import PATIENCE, until
from penstock.coordinator import Coordinator, PipelineState
from penstock.coordinators.kafka.coordinator import KafkaCoordinator
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.coordinators.sqlite.coordinator import SqliteCoordinator
from penstock.errors import StateUnavailable
from penstock.sources.sqlite.point import of_cursor
from penstock.sources.sqlite.source import LANE
from penstock.testing import oracle
from penstock.testing.receiver import ReceiverProcess
from penstock.text.duration import parse
from program import Program, send
from shop import Shop

FREE_WITHIN = 1.0
TERM = "60s"
"""The length of a term in all tests: longer than a host stalls. `Rig.outlast` makes a term expire."""
QUICK = {"tries": "forever", "policy": "exponential", "min": "10ms", "max": "200ms"}


def is_free(database: Path) -> bool:
    """Whether one can write to it, now or in a moment."""
    with (
        closing(sqlite3.connect(database, timeout=FREE_WITHIN, isolation_level=None)) as connection,
        suppress(sqlite3.OperationalError),
    ):
        connection.execute("begin immediate")
        return True
    return False


def coordinator(folder: Path, state: str) -> Coordinator:
    """Where `state` says."""
    if state.startswith("kafka://"):
        return KafkaCoordinator(state)
    return PostgresCoordinator(state) if "://" in state else SqliteCoordinator(path=str(folder / state))


class Rig:
    """Everything of one pipeline; leaves no process behind."""

    def __init__(
        self,
        folder: Path,
        name: str = "shop",
        receiver: ReceiverProcess | None = None,
        state: str = "state.db",
        term: str = TERM,
        **sink: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.shop = folder, name, Shop(folder / "shop.db")
        self.receiver = receiver or ReceiverProcess(folder / "requests").start()
        self.file, self._state, self._term = folder / "pipeline.yaml", state, term
        self.state = coordinator(folder, state)
        self.programs: list[Program] = []
        self.leaving: list[Callable[[], object]] = []
        self._standing = PipelineState()
        self.write(**sink)

    def write(
        self,
        transform: dict[str, str] | None = None,
        tables: str | None = None,
        start: str | None = None,
        retain: dict[str, str] | None = None,
        **sink: Any,
    ) -> None:
        """Write the pipeline file."""
        given = {"tables": tables, "start": start, "retain": retain}
        source = {"type": "sqlite", "database": "shop.db"} | {name: value for name, value in given.items() if value}
        webhook = {"type": "webhook", "url": self.receiver.url, "timeout": "60s", "batch": {"size": 20}, "retry": QUICK} | sink
        term = {} if self._state.startswith("kafka://") else {"term": self._term}
        content = {"name": self.name, "source": source, "sink": webhook, "state": self._state} | term
        self.file.write_text(yaml.safe_dump(content | ({"transform": transform} if transform else {})))

    def start(self, *arguments: str | Path, **how: Any) -> Program:
        """Start a process on the pipeline, and on others whose files are named."""
        program = Program(self.folder, self.file, *arguments, **how)
        self.programs.append(program)
        return program

    def pipeline_state(self) -> PipelineState:
        """What the state file says; what it said last, while it cannot be read."""
        with suppress(StateUnavailable):
            self._standing = self.state.pipeline_state(self.name)
        return self._standing

    @property
    def position(self) -> int:
        """Where the watermark stands; 0 before there is one, and as long as rows go before it."""
        mark = self.pipeline_state().watermarks.get(LANE)
        return 0 if mark is None or of_cursor(mark.cursor).is_pending else mark.position

    def leader(self) -> Program | None:
        """The living process that holds the term."""
        standing = self.pipeline_state()
        pid = int(standing.holder.split(":")[1]) if standing.holder and standing.is_held else None
        return next((program for program in self.programs if program.pid == pid and program.is_running()), None)

    def outlast(self, program: Program, *others: Program) -> None:
        """Make a term of silence pass for the processes that watch it."""
        for one in (program, *others):
            one.skip(parse(self._term).total_seconds() + 1)

    def until_outlasted_by(self, successor: Program) -> None:
        """Make terms pass for this process until it leads: the leader is silent."""
        until(lambda: self.leader() is successor or self.outlast(successor), what=self.tails)

    def freeze(self, program: Program, *others: Rig) -> None:
        """Stop a process where it stands, but not inside a transaction: SQLite would keep its lock for it, from everybody."""
        until(lambda: self._is_frozen(program, others), what=lambda: "it always holds a lock")

    def _is_frozen(self, program: Program, others: Sequence[Rig]) -> bool:
        send(signal.SIGSTOP, tree := program.tree())
        files = [path for one in (self, *others) for path in (one.shop.path, one.folder / one._state)]
        if all(is_free(path) for path in files if path.exists()):
            return True
        send(signal.SIGCONT, tree)
        return False

    def until_settled(self, within: float = PATIENCE) -> None:
        """Wait until the watermark stands behind everything that was committed."""
        until(
            lambda: self.position >= self.shop.head,
            within,
            lambda: f"still at {self.position}, not at {self.shop.head}\n{self.tails()}",
        )

    def until_delivered(self, position: int, within: float = PATIENCE) -> None:
        """Wait until this change has come to the receiver."""
        until(lambda: position in self.positions(), within, lambda: f"change {position} has not come\n{self.tails()}")

    def deliveries(self) -> list[oracle.Delivery]:
        """What has come to the receiver."""
        return oracle.deliveries(self.receiver.requests)

    def positions(self) -> list[int]:
        """The positions that came, with repeats."""
        return [delivery.position for delivery in self.deliveries()]

    def breaches(self, marks: Sequence[oracle.Reached] = ()) -> list[str]:
        """What all oracles say."""
        return [breach for found in self.verdicts(marks).values() for breach in found]

    def verdicts(self, marks: Sequence[oracle.Reached] = ()) -> dict[str, list[str]]:
        """What each oracle says."""
        seen = self.deliveries()
        return {
            "completeness": oracle.completeness(seen, self.shop.log),
            "order": oracle.order(seen),
            "chain": oracle.chain(seen),
            "rebuilt": oracle.rebuilt(seen, self.shop.tables()),
            "repeats": oracle.repeats(seen, marks),
            "resolved": oracle.resolved(seen, marks),
        }

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- process {program.pid}\n{program.tail()}" for program in self.programs[-3:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        for program in self.programs:
            program.kill_tree()
        for leave in self.leaving:
            leave()
        if self.receiver.url:
            self.receiver.stop()


class Sampler(Thread):
    """Writes down again and again where the watermark stands."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(name="sampler", daemon=True)
        self._rig, self._leaving, self.marks = rig, Event(), list[oracle.Reached]()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._leaving.wait(0.1):
            position = self._rig.position
            self.marks.append(oracle.Reached(time.time(), position))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self.join()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        yield made


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say something that is shown below the results, also when all went well."""

    def said(text: str) -> None:
        record_property("note", text)
        print(text)  # noqa: T201 - for the report of a failure

    return said


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Seeds, counts and timings of the tests that noted some."""
    for report in (one for reports in terminalreporter.stats.values() for one in reports if getattr(one, "when", "") == "call"):
        for _, text in (one for one in report.user_properties if one[0] == "note"):
            terminalreporter.write_line(f"{report.location[2]}: {text}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the logs of the processes when a test has failed."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        rigs = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Rig)]
        report.sections += [(f"logs of {one.name}", one.tails()) for one in rigs]
