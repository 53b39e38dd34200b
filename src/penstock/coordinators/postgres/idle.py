"""Sessions that wait for their next use: to open one costs a process on the server."""

from __future__ import annotations

import atexit
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.coordinators.postgres.store import Store

KEPT = 2
"""How many are kept for each database."""

_lock = Lock()
_idle: defaultdict[str, list[Store]] = defaultdict(list)


@contextmanager
def borrowed(dsn: str) -> Iterator[Store]:
    """A session that is used by nobody else; after any error it is not used again."""
    store = _taken(dsn) or Store(dsn)
    try:
        yield store
    except BaseException:
        store.close()
        raise
    _give_back(store)


def _taken(dsn: str) -> Store | None:
    while True:
        with _lock:
            if not _idle[dsn]:
                return None
            store = _idle[dsn].pop()
        if store.is_usable():
            return store
        store.close()


def _give_back(store: Store) -> None:
    with _lock:
        if not store.is_new and len(_idle[store.dsn]) < KEPT:
            _idle[store.dsn].append(store)
            return
    store.close()


@atexit.register
def close_all() -> None:
    """End all of them."""
    with _lock:
        for store in [one for stores in _idle.values() for one in stores]:
            store.close()
        _idle.clear()


def _forget_all() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_all)
