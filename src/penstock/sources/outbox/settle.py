"""Recording the positions of pipelines, and purging the messages that all of them have delivered, in batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock import failpoint
from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.owner import Owner, refuse_another
from penstock.source import Reader, Settlement
from penstock.sources.outbox import readers
from penstock.sources.outbox.database import Connection
from penstock.sources.outbox.log import Log, reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import of_cursor
from penstock.sources.outbox.survey import survey
from penstock.sources.outbox.window import BETWEEN, INSIDE, RecordedWindow, pruned
from penstock.sources.retain import Registrant, Registration, Retain, Sightings, is_overdue

BATCH = 10_000  # rows deleted in one transaction
BEAT = 60.0  # seconds after which a running pipeline is noted in any case
SWEEP = 50_000  # rows purged by this process after which it vacuums, sooner than autovacuum
_BUDGET = 0.7  # seconds that one call may take
_SWEEP_SECONDS = 2.0  # a longer vacuum is left to autovacuum

_sightings = Sightings()
_unswept: dict[tuple[str, str], int] = {}


@dataclass(frozen=True, slots=True)
class OutboxRetention:
    """The pipelines that are registered in the outbox, and the purging of its messages."""

    database: str = field(repr=False)
    names: Names
    retain: Retain

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Record the position at once, also an earlier one."""
        place = of_cursor(upto)
        with reading(self.database, self.names) as log:
            log.confirm(place)
            with log.connection.transaction():
                [(purged,)] = log.connection.execute(f"{_life(self.names)} for update".encode()).fetchall()
                if purged > place.position:
                    raise pruned(self.names, place.position)
                readers.note(log.connection, self.names, Registrant(pipeline, lane, owner).at(place.position, self.retain))

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position recorded for this pipeline."""
        with reading(self.database, self.names) as log:
            known = readers.load(log.connection, self.names)
        return next((one.position for one in known if one.name == (pipeline, lane)), None)

    def readers(self) -> Sequence[Reader]:
        """All registered pipelines."""
        with reading(self.database, self.names) as log:
            known, head = readers.load(log.connection, self.names), log.windows.tip().end
        return [one.shown(known, head) for one in known]

    def remarks(self) -> Sequence[str]:
        """The sessions that keep Postgres from reusing the space of settled messages."""
        holders = survey(self.database, self.names).holders
        return [f"{one.who} keeps vacuum from reusing the space of settled messages: {one.remedy}" for one in holders]

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Record the position and purge. Raises SourcePruned and SourceRewound if the outbox does not continue at it."""
        failpoint.reach("source.settling")
        place, names, retain = of_cursor(upto), self.names, self.retain
        now = Registrant(pipeline, lane, owner).at(place.position, retain)
        with reading(self.database, names) as log:
            known = {one.name: one for one in readers.load(log.connection, names)}
            mine = known.pop(now.name, None)
            refuse_another(mine, now.owner)
            log.confirm(place)
            if mine is None or _is_due(mine, now):
                readers.note(log.connection, names, now)
            head, at = log.windows.tip().end, time.monotonic()
            overdue = [one for one in known.values() if is_overdue(one, head, _sightings.seconds(self.database, one, at), retain)]
            released = [one for one in overdue if retain.then == "release" and readers.release(log.connection, names, one)]
            gone = _purge(log, names)
            _sweep(self.database, log.connection, names, gone)
        living = [now, *(one for one in known.values() if one not in released)]
        held = [one.shown(living, head) for one in overdue if one not in released]
        return Settlement(gone, [one.shown([now], head) for one in released], held)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration, or hand it over."""
        with reading(self.database, self.names) as log:
            return readers.forget(log.connection, self.names, pipeline, owner)


def _is_due(mine: Registration, now: Registration) -> bool:
    """Whether the registration must be written."""
    return mine.is_released or mine.owner != now.owner or mine.position != now.position or mine.silent >= BEAT


def _life(names: Names) -> str:
    return f"select pruned from {names.life} where number = (select max(number) from {names.life})"


def _purge(log: Log, names: Names) -> int:
    gone, end = 0, time.monotonic() + _BUDGET
    while went := _purge_batch(log, names):
        gone += went
        if time.monotonic() > end:
            break
    return gone


def _purge_batch(log: Log, names: Names) -> int:
    """Delete messages that no reader needs, by position; none while another process purges or registers."""
    connection = log.connection
    with connection.transaction():
        connection.execute("set local synchronous_commit = off")  # rows that a crash restores are purged again
        locked = connection.execute(f"{_life(names)} for update skip locked".encode()).fetchone()
        purged = locked[0] if locked else 0
        needed = _needed(connection, names) if locked else 0
        if needed <= purged:
            return 0
        window = log.windows.at(purged)
        last = log.windows.last_before(purged, min(needed, purged + BATCH))
        reached = last.end if last else min(needed, purged + BATCH, window.end)
        went = _delete(connection, names, window, last) if last else _delete_first(connection, names, window, reached - purged)
        _forget_windows(connection, names, reached)
        return went


def _needed(connection: Connection, names: Names) -> int:
    """The position up to which neither a pipeline nor the history of one needs a message."""
    found = connection.execute(
        f"select min(position), max(history) from {names.reader} where released_at is null".encode()
    ).fetchone()
    lowest, history = found or (None, None)
    if lowest is None:
        return 0
    recent = connection.execute(
        f"select min(after) from {names.window} where rows > 0 and %s > interval '0' and made_at > clock_timestamp() - %s".encode(),
        (history, history),
    ).fetchone()
    return int(lowest) if not recent or recent[0] is None else min(int(lowest), int(recent[0]))


def _delete(connection: Connection, names: Names, first: RecordedWindow, last: RecordedWindow) -> int:
    """Delete all rows of consecutive windows."""
    facts = {"since": first.since, "upto": last.upto}
    return sum(connection.execute(f"delete from {names.rows} where {of}".encode(), facts).rowcount for of in BETWEEN)


def _delete_first(connection: Connection, names: Names, window: RecordedWindow, rows: int) -> int:
    """Delete the first remaining rows of a long window, or of one that is settled in part."""
    facts = {"since": window.since, "upto": window.upto, "rows": rows}
    first = f"select id from {names.rows} where {INSIDE} order by id limit %(rows)s"
    return connection.execute(f"delete from {names.rows} where id = any(array({first}))".encode(), facts).rowcount


def _forget_windows(connection: Connection, names: Names, reached: int) -> None:
    """Delete windows that are purged completely, except the last window: the next one begins after it."""
    done = f"after <= %(reached)s and after + rows <= %(reached)s and number < (select max(number) from {names.window})"
    connection.execute(
        f"with gone as (delete from {names.window} where {done} returning made_at)"
        f" update {names.life} set pruned = %(reached)s, pruned_at = coalesce((select max(made_at) from gone), pruned_at)"
        f" where number = (select max(number) from {names.life})".encode(),
        {"reached": reached},
    )


def _sweep(dsn: str, connection: Connection, names: Names, gone: int) -> None:
    """Vacuum after many purged rows: autovacuum runs only once a minute."""
    from psycopg.errors import QueryCanceled

    unswept = _unswept.get((dsn, names.table), 0) + gone
    if unswept >= SWEEP:
        unswept = 0
        connection.execute(f"set statement_timeout = {int(_SWEEP_SECONDS * 1000)}".encode())
        with suppress(QueryCanceled):
            connection.execute(f"vacuum (skip_locked, truncate false) {names.rows}".encode())
        connection.execute("reset statement_timeout")
    _unswept[dsn, names.table] = unswept
