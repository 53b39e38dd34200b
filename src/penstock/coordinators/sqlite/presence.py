"""Who is there: seats, the locks that prove their holders alive, and the list of standbys."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from penstock.coordinators import locks
from penstock.coordinators.sqlite.store import Store, folder


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
    """The same as well as it can be told at once, for people: by the wall clock where no lock can tell."""
    alive = is_alive(path, seat)
    return abs(time.time() - seen_at) <= ttl if alive is None else alive


def standbys(store: Store, pipeline: str, ttl: float) -> Sequence[str]:
    """The seats of those who wait for this pipeline."""
    rows = store.rows("select seat, seen_at from standbys where pipeline = ?", pipeline)
    return [seat for seat, seen_at in rows if is_present(store.path, seat, seen_at, ttl)]


def sweep(store: Store, pipeline: str, ttl: float) -> None:
    """Forget the standbys that are gone, and the files of all who died."""
    present = set(standbys(store, pipeline, ttl))
    for (seat,) in store.rows("select seat from standbys where pipeline = ?", pipeline):
        if seat not in present:
            leave(store, pipeline, seat)
    locks.reap(folder(store.path).glob("seat.*"))


def wait_in(store: Store, pipeline: str, seat: str) -> None:
    """Stand in the list of those who wait."""
    store.write("insert or replace into standbys values (?, ?, ?)", pipeline, seat, time.time())


def leave(store: Store, pipeline: str, seat: str) -> None:
    """Wait no longer."""
    store.write("delete from standbys where pipeline = ? and seat = ?", pipeline, seat)
