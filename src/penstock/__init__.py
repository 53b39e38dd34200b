"""Change feeds on Spark: every committed change, in order, at least once."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.change import Change, Lane, Op
    from penstock.config import load, parse
    from penstock.cursor import Cursor, Watermark
    from penstock.errors import PenstockError
    from penstock.numbered_transaction import transaction
    from penstock.pipeline import Pipeline, Transform
    from penstock.running.run import run
    from penstock.status import Status

_PLACES = {
    "Change": "penstock.change",
    "Cursor": "penstock.cursor",
    "Lane": "penstock.change",
    "Op": "penstock.change",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.pipeline",
    "Status": "penstock.status",
    "Transform": "penstock.pipeline",
    "Watermark": "penstock.cursor",
    "load": "penstock.config",
    "parse": "penstock.config",
    "run": "penstock.running.run",
    "transaction": "penstock.numbered_transaction",
}

__all__ = [
    "Change",
    "Cursor",
    "Lane",
    "Op",
    "PenstockError",
    "Pipeline",
    "Status",
    "Transform",
    "Watermark",
    "load",
    "parse",
    "run",
    "transaction",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: workers and `penstock --help` need few of them."""
    if name in ("outbox", "spark"):
        return resolve_name(f"penstock.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return resolve_name(f"{_PLACES[name]}:{name}")
