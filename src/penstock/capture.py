"""Capture of changes by triggers inside a database: its commands, and their reports.

Implementations are in the folders of sources; the address of a database selects one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from penstock.owner import Owner

Progress = Callable[[str, int, int], None]
"""Called during a scan with a table, the number of rows done, and the number of all."""


@dataclass(slots=True)
class Report:
    """The effect of a command or of its trial run: a word for each table, and the SQL."""

    tables: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    is_wal: bool = True

    def run(self, execute: Callable[[str], object], sql: str) -> None:
        """Execute a statement, and add it to the report."""
        execute(sql)
        self.statements.append(sql)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of one table and its reason: captured, suspended, broken, not captured, or not capturable."""

    table: str
    state: str
    why: str = ""
    left_out: tuple[str, ...] = ()  # columns that are not captured


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A registered pipeline, the number of changes `kept` for it alone, and its `state`: at work, gone, or released."""

    pipeline: str
    lane: str
    position: int
    noted_at: str
    kept: int
    state: str
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The capture of a database, if it has one."""

    database: str
    enabled: bool
    journal_mode: str
    incarnation: str | None
    first: int | None
    head: int | None
    tables: tuple[TableState, ...]
    readers: tuple[ReaderState, ...]

    @property
    def is_broken(self) -> bool:
        """Whether changes may be missing from the log."""
        return any(table.state == "broken" for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs from the log, and the first `column` that differs."""

    key: str
    what: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one table with the log: the number of keys compared, of rows that differ, and of keys not judged."""

    table: str
    state: str
    why: str
    compared: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    unjudged: int = 0  # keys whose last change is uncertain, or that changed while capture was suspended
    unmentioned: int | None = None  # rows absent from the log, if they were counted
    is_whole: bool = False  # the log has every row, so that absent rows are differences

    @property
    def is_equal(self) -> bool:
        """Whether no judged row differs."""
        return self.differing == 0 and self.state != "not comparable"


@dataclass(frozen=True, slots=True)
class Verification:
    """The requested tables, in one state of the database."""

    database: str
    first: int | None
    head: int | None
    tables: tuple[Comparison, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the tables equal the log, as far as it reaches."""
        return all(one.is_equal for one in self.tables)

    def facts(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self) | {"is_equal": self.is_equal}


class Capture(Protocol):
    """The commands on one kind of database. `tables` is a regular expression for whole names; None selects all tables.

    Every command raises ConfigInvalid if the database does not exist, and none creates one.
    """

    def serves(self, address: str) -> bool:
        """Whether this is an address of this kind of database."""

    def enable(
        self, address: str, tables: str | None, columns: str | None, *, row_ids_only: bool, wal: bool, is_trial: bool
    ) -> Report:
        """Put tables under capture, with the matching columns; a trial changes nothing."""

    def disable(self, address: str, tables: str | None, *, is_trial: bool) -> Report:
        """End the capture of tables; without `tables` the log is removed, too."""

    def survey(self, address: str, tables: str | None) -> Survey:
        """The tables, the log and the registered pipelines, in one state of the database."""

    def suspend(self, address: str, tables: str | None) -> Report:
        """Record only the keys of changed rows, until `resume`."""

    def resume(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Capture again, and log the rows that changed while capture was suspended."""

    def repair(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Renew the triggers, and log all rows of tables whose log has gaps."""

    def verify(self, address: str, tables: str | None, sample: int | None) -> Verification:
        """Compare tables with the log."""

    def repair_command(self, address: str, table: str) -> str:
        """The command line that repairs a table."""
