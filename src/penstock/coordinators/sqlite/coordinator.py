"""The embedded coordinator. `DESIGN.md` in the folder above states its invariants."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.coordinators import locks
from penstock.coordinators.row_coordinator import RowCoordinator
from penstock.coordinators.sqlite.candidate import SqliteCandidate, is_present, standbys
from penstock.coordinators.sqlite.claim import SqliteClaim, claimed
from penstock.coordinators.sqlite.condition import silent
from penstock.coordinators.sqlite.letters import SqliteLetters
from penstock.coordinators.sqlite.store import StateStore, folder, is_new
from penstock.errors import StateUnavailable
from penstock.files.room import unwritable

_TERM = "select epoch, holder, seat, beat_at, coalesce(ttl, :ttl), error from terms where pipeline = :pipeline"


@dataclass(frozen=True)
class SqliteCoordinator(RowCoordinator[StateStore]):
    """Terms and watermarks in one SQLite file; processes on one machine share it."""

    path: str
    letters_in = SqliteLetters

    @property
    def address(self) -> str:
        """The path of the file."""
        return self.path

    def examine(self) -> None:
        """Raise StateUnavailable if this user cannot write the file."""
        if why := _obstacle(Path(self.path)):
            raise StateUnavailable(f"{self.path} cannot be written: {why}", "make its folder, or give this user write permission")

    def candidate(self, pipeline: str, holder: str) -> SqliteCandidate:
        """Stand for a pipeline; creates the file if there is none."""
        return SqliteCandidate(self._file, pipeline, holder, self.ttl, self.clock)

    @contextmanager
    def claim(self, term: Term, lane: Lane, attempt: int) -> Iterator[SqliteClaim]:
        """Hold a lane; blocks while a predecessor of this term still does."""
        with closing(StateStore(self._file)) as store, claimed(store, term, lane, attempt, self.grace) as claim:
            yield claim

    @property
    def _file(self) -> Path:
        """The real path of the file: the locks belong to it, whatever links lead there."""
        return Path(os.path.realpath(self.path))

    @contextmanager
    def _reading(self) -> Iterator[StateStore | None]:
        if is_new(self._file):
            yield None
            return
        with closing(StateStore(self._file, writes=False)) as store:
            yield store

    @contextmanager
    def _writing(self) -> Iterator[StateStore]:
        with closing(StateStore(self._file)) as store, store.atomic():
            yield store

    @contextmanager
    def _sole(self, pipeline: str) -> Iterator[bool]:
        with locks.seize(folder(self._file) / f"redrive.{locks.digest(pipeline)}") or nullcontext() as lock:
            yield lock is not None

    def _term(self, store: StateStore, pipeline: str) -> dict[str, Any]:
        found = store.rows(_TERM, pipeline=pipeline, ttl=self.ttl)
        epoch, holder, seat, beat_at, ttl, error = found[0] if found else (0, None, None, None, self.ttl, None)
        is_held = seat is not None and is_present(store.path, seat, beat_at, ttl)
        silence = silent(store, f"{holder} leads {pipeline}", beat_at, ttl) if is_held else None
        term = {"epoch": epoch, "holder": holder, "is_held": is_held, "error": json.loads(error) if error else None}
        trouble = {"trouble": silence} if silence else {}
        return {**term, **trouble, "standbys": len(standbys(store, pipeline, self.ttl))}


def _obstacle(path: Path) -> str | None:
    if path.exists() and not os.access(path, os.W_OK):
        return "this user may not write to it"
    return unwritable(path.parent) if path.parent.is_dir() else "its folder does not exist"
