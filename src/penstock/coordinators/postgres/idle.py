"""Idle sessions, kept for reuse: each new session starts a process on the server."""

from __future__ import annotations

import atexit
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.coordinators.postgres.store import StateStore

KEPT = 2
"""Number of sessions kept for each database."""

_lock = Lock()
_idle: defaultdict[str, list[StateStore]] = defaultdict(list)


@contextmanager
def borrowed(dsn: str) -> Iterator[StateStore]:
    """A session for exclusive use; after any error it is closed."""
    store = _taken(dsn) or StateStore(dsn)
    try:
        yield store
    except BaseException:
        store.close()
        raise
    _give_back(store)


def _taken(dsn: str) -> StateStore | None:
    while True:
        with _lock:
            if not _idle[dsn]:
                return None
            store = _idle[dsn].pop()
        if store.is_usable():
            return store
        store.close()


def _give_back(store: StateStore) -> None:
    with _lock:
        if not store.is_new and len(_idle[store.dsn]) < KEPT:
            _idle[store.dsn].append(store)
            return
    store.close()


@atexit.register
def close_all() -> None:
    """End all idle sessions."""
    with _lock:
        for stores in _idle.values():
            while stores:
                stores.pop().close()


def _forget_all() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_all)
