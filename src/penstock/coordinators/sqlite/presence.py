"""Seats, the locks that prove their holders alive, and standbys."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from penstock.coordinators import locks
from penstock.coordinators.sqlite.store import StateStore, folder


def new_seat() -> str:
    """A name that no other candidate has, on any machine, ever."""
    return f"{locks.machine()}/{uuid.uuid4().hex}"


def lock_of(path: Path, seat: str) -> Path:
    """The file whose lock proves that the candidate in this seat lives."""
    return folder(path) / f"seat.{locks.digest(seat)}"


def is_alive(path: Path, seat: str) -> bool | None:
    """Whether the candidate in this seat lives; None for one on another machine."""
    return locks.is_locked(lock_of(path, seat)) if seat.startswith(locks.machine() + "/") else None


def is_present(path: Path, seat: str, seen_at: float, ttl: float) -> bool:
    """The same for display: by the wall clock where a lock proves nothing."""
    alive = is_alive(path, seat)
    return abs(time.time() - seen_at) <= ttl if alive is None else alive


def standbys(store: StateStore, pipeline: str, ttl: float, *, present: bool = True) -> Sequence[str]:
    """The seats of the standbys of this pipeline; with `present` False those that are gone."""
    rows = store.rows("select seat, seen_at from standbys where pipeline = :pipeline", pipeline=pipeline)
    return [seat for seat, seen_at in rows if is_present(store.path, seat, seen_at, ttl) is present]


def sweep(store: StateStore, pipeline: str, ttl: float) -> None:
    """Remove the standbys that are gone, and the files of all dead candidates."""
    for seat in standbys(store, pipeline, ttl, present=False):
        store.write("delete from standbys where pipeline = :pipeline and seat = :seat", pipeline=pipeline, seat=seat)
    locks.reap(folder(store.path).glob("seat.*"))
