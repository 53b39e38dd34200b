"""Who is there: seats are numbers on which sessions hold locks, and a lock that is free means that its session has ended."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store

ALIVE = "case when seat is not null then not pg_try_advisory_xact_lock_shared(seat) end"
"""Whether the session in this seat lives. Whoever asks shares its lock with others who ask, for that moment."""


def standbys(store: Store, pipeline: str) -> Sequence[int]:
    """The seats of those who wait for this pipeline."""
    return [seat for seat, is_alive in _listed(store, pipeline) if is_alive]


def sweep(store: Store, pipeline: str) -> None:
    """Forget the standbys that are gone."""
    for seat, is_alive in _listed(store, pipeline):
        if not is_alive:
            leave(store, pipeline, seat)


def wait_in(store: Store, pipeline: str, seat: int) -> None:
    """Stand in the list of those who wait."""
    sql = f"""
    insert into {NAME}.standbys values (%(pipeline)s, %(seat)s, now())
    on conflict (pipeline, seat) do update set seen_at = excluded.seen_at
    """
    store.write(sql, pipeline=pipeline, seat=seat)


def leave(store: Store, pipeline: str, seat: int) -> None:
    """Wait no longer."""
    store.write(f"delete from {NAME}.standbys where pipeline = %(pipeline)s and seat = %(seat)s", pipeline=pipeline, seat=seat)


def _listed(store: Store, pipeline: str) -> Sequence[tuple[int, bool]]:
    sql = f"select seat, {ALIVE} from {NAME}.standbys where pipeline = %(pipeline)s"
    return [(seat, is_alive) for seat, is_alive in store.rows(sql, pipeline=pipeline)]
