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
    """The effect of a command, or of its trial: a word for each table, and the SQL."""

    tables: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    is_wal: bool = True

    def run(self, execute: Callable[[str], object], sql: str) -> None:
        """Execute a statement, and put it on the report."""
        execute(sql)
        self.statements.append(sql)


@dataclass(frozen=True, slots=True)
class TableState:
    """One table: captured, suspended, broken, not captured, or not capturable, and why; `left_out` are columns not captured."""

    table: str
    state: str
    why: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """A pipeline that is registered; the log is kept from the lowest position of them all, save those that were released.

    `kept`: changes that are kept for it alone. `state`: at work, gone, or released. `owner`: the state store to which it belongs.
    """

    pipeline: str
    lane: str
    position: int
    noted_at: str
    kept: int
    state: str
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A database under capture, or not."""

    database: str
    enabled: bool
    journal_mode: str
    incarnation: str | None
    first: int | None
    head: int | None
    tables: tuple[TableState, ...]
    readers: tuple[Reader, ...]

    @property
    def is_broken(self) -> bool:
        """Whether changes may be missing from the log."""
        return any(table.state == "broken" for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not as the log says; `column` is the first that differs."""

    key: str
    what: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One table: how many keys of the log were compared, how many rows differ, and which part could not be judged."""

    table: str
    state: str
    why: str
    compared: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    unjudged: int = 0  # keys whose last event cannot be trusted, or that were touched while suspended
    unmentioned: int | None = None  # rows that the log does not name, where they were counted
    is_whole: bool = False  # the log names every row, so that such rows are differences

    @property
    def is_equal(self) -> bool:
        """Whether nothing that could be judged differs."""
        return self.differing == 0 and self.state != "not comparable"


@dataclass(frozen=True, slots=True)
class Verification:
    """All tables that were asked for, in one state of the database."""

    database: str
    first: int | None
    head: int | None
    tables: tuple[Verdict, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the log gives the tables, as far as it reaches."""
        return all(one.is_equal for one in self.tables)

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self) | {"is_equal": self.is_equal}


class Capture(Protocol):
    """The commands on one kind of database. `tables` are regular expressions for whole names; without one, all tables are meant.

    Every command raises ConfigInvalid where there is no such database, and none creates one.
    """

    def serves(self, address: str) -> bool:
        """Whether this is an address of this kind of database."""

    def enable(
        self, address: str, tables: str | None, columns: str | None, *, row_ids_only: bool, wal: bool, is_trial: bool
    ) -> Report:
        """Put tables under capture, with the matching columns; a trial changes nothing."""

    def disable(self, address: str, tables: str | None, *, is_trial: bool) -> Report:
        """Take tables out of capture; without a choice the log is removed, too."""

    def survey(self, address: str, tables: str | None) -> Survey:
        """The tables, the log and the registered pipelines, in one state of the database."""

    def suspend(self, address: str, tables: str | None) -> Report:
        """Note only which rows are touched, until `resume`."""

    def resume(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Capture again, and log the rows that were touched meanwhile."""

    def repair(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Renew the triggers, and log all rows of tables whose log has gaps."""

    def verify(self, address: str, tables: str | None, sample: int | None) -> Verification:
        """Compare tables with the log."""

    def repair_command(self, address: str, table: str) -> str:
        """The command line that repairs a table."""
