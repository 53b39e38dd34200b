"""The connection that the kinds of state with SQL share. Its statements name their parameters `:name`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Tables(Protocol):
    """A connection to a state store.

    `schema`: the prefix of its tables. `now`: the present moment in its SQL. `is_new`: the store has no tables yet.
    """

    schema: str
    now: str
    is_new: bool

    def rows(self, sql: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows that a statement returns."""

    def write(self, sql: str, /, **values: object) -> bool:
        """Execute one statement; False if it changed no row."""

    def atomic(self, *, flushes: bool = True) -> AbstractContextManager[None]:
        """A transaction; with `flushes` it survives a loss of power once it is committed."""

    def flush(self) -> None:
        """Make all committed transactions survive a loss of power."""
