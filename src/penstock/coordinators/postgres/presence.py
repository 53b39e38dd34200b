"""Standbys. Seats are numbers on which sessions hold locks; a free lock proves that its session has ended."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import StateStore

ALIVE = "case when seat is not null then not pg_try_advisory_xact_lock_shared(seat) end"
"""Whether the session in this seat lives. Observers share the lock for that moment."""

SWEEP = f"delete from {NAME}.standbys where pipeline = :pipeline and not ({ALIVE})"
"""Removes the standbys whose sessions have ended."""


def standbys(store: StateStore, pipeline: str) -> Sequence[int]:
    """The seats of the standbys of this pipeline."""
    sql = f"select seat, {ALIVE} from {NAME}.standbys where pipeline = :pipeline"
    return [seat for seat, is_alive in store.rows(sql, pipeline=pipeline) if is_alive]
