"""Idle sessions, kept for reuse: each new session starts a process on the server."""

from __future__ import annotations

import atexit
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.coordinators.postgres.store import StateStore

KEPT = 2
"""Number of sessions kept for each database; a few more, if threads return theirs at the same moment."""

_idle: defaultdict[str, list[StateStore]] = defaultdict(list)  # a child that was forked finds those of its parent unusable


@contextmanager
def borrowed(dsn: str) -> Iterator[StateStore]:
    """A session for exclusive use; after any error it is closed."""
    store = _taken(dsn) or StateStore(dsn)
    try:
        yield store
    except BaseException:
        store.close()
        raise
    if store.is_new or len(_idle[dsn]) >= KEPT:
        store.close()
    else:
        _idle[dsn].append(store)


def _taken(dsn: str) -> StateStore | None:
    with suppress(IndexError):  # none is left
        while not (store := _idle[dsn].pop()).is_usable():
            store.close()
        return store
    return None


@atexit.register
def _close_all() -> None:
    for stores in _idle.values():
        while stores:
            stores.pop().close()
