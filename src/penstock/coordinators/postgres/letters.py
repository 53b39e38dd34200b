"""Dead letters in Postgres: an ordinary table, and beside it the rows that each of them is about.

Whoever alters letters does so in a transaction that begins with `queue`: one step at a time for each pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg
from psycopg import errors

from penstock.change import Lane
from penstock.coordinators.lettering import COLUMNS, letter_of, row_of, too_large
from penstock.coordinators.postgres.numbers import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

_PARK = f"""
insert into {NAME}.dead_letters ({", ".join(COLUMNS)}) values ({", ".join(f"%({name})s" for name in COLUMNS)})
on conflict do nothing returning number
"""
_GIVEN = "unnest(%(tables)s::text[], %(keys)s::text[]) w(table_name, row_key)"
_NOTE = f"""
insert into {NAME}.dead_rows (pipeline, table_name, row_key, letter)
select %(pipeline)s, w.table_name, coalesce(w.row_key, ''), %(letter)s from {_GIVEN} on conflict do nothing
"""
_IS_PARKED = f"""
select from {NAME}.dead_letters where pipeline = %(pipeline)s and incarnation = %(incarnation)s and lane = %(lane)s
and position = %(position)s and ordinal = %(ordinal)s
"""

_OF_TABLE = f"from {_GIVEN} join {NAME}.dead_rows r on r.pipeline = %(pipeline)s and r.table_name = w.table_name"
_TOUCHING = f"""
select r.letter {_OF_TABLE} and r.row_key in (w.row_key, '')
union all select r.letter {_OF_TABLE} and r.row_key <> '' where w.row_key is null
"""  # two parts, since with `or` no index would be used
_EARLIER = f"""
from ({_TOUCHING}) t join {NAME}.dead_letters l on l.number = t.letter
where (l.incarnation <> %(incarnation)s or l.lane <> %(lane)s
or (l.position <= %(position)s and (l.position, l.ordinal) <> (%(position)s, %(ordinal)s)))
"""
_IS_HELD = f"select {_EARLIER} and l.holds limit 1"
_OVERTAKE = f"""
update {NAME}.dead_letters set overtaken = true, overtaken_by = %(name)s
where not overtaken and number in (select l.number {_EARLIER})
"""
_RETURN = f"""
update {NAME}.dead_letters set overtaken = false, overtaken_by = null
where overtaken_by = %(name)s and number in (select l.number {_EARLIER})
"""

_HOLDS = f"""
select incarnation, lane, position, ordinal, holds, overtaken,
    (select json_agg(json_build_array(table_name, nullif(row_key, ''))) from {NAME}.dead_rows where letter = number)
from {NAME}.dead_letters where
"""
_OF_PIPELINE, _OF_ROWS = "pipeline = %(pipeline)s", f"number in ({_TOUCHING})"

_LETTERS = f"""
select {", ".join(COLUMNS)}, number from {NAME}.dead_letters where pipeline = %(pipeline)s
order by min(number) over (partition by incarnation, lane), position, ordinal
"""
_COUNT = f"""
insert into {NAME}.dead_counts as c (pipeline, dropped, passed, redriven)
values (%(pipeline)s, %(dropped)s, %(passed)s, %(redriven)s) on conflict (pipeline) do update set
dropped = c.dropped + excluded.dropped, passed = c.passed + excluded.passed, redriven = c.redriven + excluded.redriven
"""
_SUMMARY = f"""
select (select count(*) from {NAME}.dead_letters where pipeline = %(pipeline)s),
    (select count(*) from {NAME}.dead_letters where pipeline = %(pipeline)s and behind),
    coalesce(sum(dropped), 0)::bigint, coalesce(sum(passed), 0)::bigint, coalesce(sum(redriven), 0)::bigint
from {NAME}.dead_counts where pipeline = %(pipeline)s
"""


def queue(store: Store, pipeline: str) -> None:
    """Wait for one's turn, which lasts until the transaction ends."""
    store.rows("select pg_advisory_xact_lock(%(lock)s)", lock=number_of("letters", pipeline))


def park(store: Store, pipeline: str, letter: DeadLetter) -> None:
    """Keep a letter, unless it is there already."""
    try:
        for (number,) in store.rows(_PARK, **_stored(pipeline, letter)):
            store.write(_NOTE, pipeline=pipeline, letter=number, **_listed(letter.rows))
    except (errors.ProgramLimitExceeded, psycopg.DataError) as error:
        raise too_large([letter], error.diag.message_primary or error) from None


def give_back(store: Store, pipeline: str, letter: DeadLetter) -> None:
    """What it was the first to be sent past it has not overtaken."""
    store.write(_RETURN, **_where(pipeline, letter), **_listed(letter.rows), name=letter.name)


def follow(store: Store, pipeline: str, letter: DeadLetter) -> bool:
    """Whether it is parked: it was, or now is, behind an earlier letter that holds a row of it. Otherwise those were overtaken."""
    where = _where(pipeline, letter)
    if store.rows(_IS_PARKED, **where):
        return True
    if store.rows(_IS_HELD, **where, **_listed(letter.rows)):
        park(store, pipeline, letter)
        return True
    store.write(_OVERTAKE, **where, **_listed(letter.rows), name=letter.name)
    return False


def _where(pipeline: str, letter: DeadLetter) -> dict[str, object]:
    position, ordinal = letter.change.place
    return {"pipeline": pipeline, "incarnation": letter.incarnation, "lane": letter.lane, "position": position, "ordinal": ordinal}


def holds(store: Store, pipeline: str, rows: Collection[Row] | None = None) -> list[Hold]:
    """The letters as others see them; all, or those that share one of these rows."""
    found = store.rows(f"{_HOLDS} {_OF_PIPELINE if rows is None else _OF_ROWS}", pipeline=pipeline, **_listed(rows or ()))
    return [
        Hold(incarnation, Lane(lane), (position, ordinal), tuple((table, key) for table, key in held or ()), *flags)
        for incarnation, lane, position, ordinal, *flags, held in found
    ]


def letters(store: Store, pipeline: str) -> list[DeadLetter]:
    """All of them, those of one key in the order in which they must be sent."""
    return [_letter(row) for row in store.rows(_LETTERS, pipeline=pipeline)]


def hold(store: Store, letter: DeadLetter, force: bool) -> bool:
    """Let later changes of its key wait for it."""
    for (pipeline,) in store.rows(f"select pipeline from {NAME}.dead_letters where number = %(number)s", number=letter.number):
        queue(store, pipeline)
    sql = f"update {NAME}.dead_letters set holds = true where number = %(number)s and (%(force)s or not overtaken)"
    return store.write(sql, number=letter.number, force=force)


def remove(store: Store, letter: DeadLetter, redriven: bool) -> bool:
    """Forget a letter, and count why."""
    for (pipeline,) in store.rows(f"select pipeline from {NAME}.dead_letters where number = %(number)s", number=letter.number):
        queue(store, pipeline)
    found = store.rows(f"delete from {NAME}.dead_letters where number = %(number)s returning pipeline", number=letter.number)
    for (pipeline,) in found:
        store.write(f"delete from {NAME}.dead_rows where letter = %(number)s", number=letter.number)
        count(store, pipeline, dropped=int(not redriven), redriven=int(redriven))
    return bool(found)


def forget(store: Store, pipeline: str) -> None:
    """Forget all of them, and what was counted."""
    queue(store, pipeline)
    for table in ("dead_letters", "dead_rows", "dead_counts"):
        store.write(f"delete from {NAME}.{table} where pipeline = %(pipeline)s", pipeline=pipeline)


def count(store: Store, pipeline: str, dropped: int = 0, passed: int = 0, redriven: int = 0) -> None:
    """Add to the totals."""
    store.write(_COUNT, pipeline=pipeline, dropped=dropped, passed=passed, redriven=redriven)


def summary(store: Store, pipeline: str) -> dict[str, int]:
    """How many there are and were, as Standing has them."""
    names = ("dead", "waiting", "dropped", "passed", "redriven")
    return dict(zip(names, store.rows(_SUMMARY, pipeline=pipeline)[0], strict=True))


def _listed(rows: Collection[Row]) -> dict[str, object]:
    return {"tables": [table for table, _ in rows], "keys": [key for _, key in rows]}


def _stored(pipeline: str, letter: DeadLetter) -> dict[str, object]:
    message = letter.message.replace("\0", "\ufffd")  # the one character that Postgres does not take
    return {**row_of(pipeline, letter), "message": message}


def _letter(row: Sequence[Any]) -> DeadLetter:
    return letter_of(dict(zip((*COLUMNS, "number"), row, strict=True)))
