"""Dead letters in the state file: an ordinary table, and beside it the rows that each of them is about."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.change import Lane
from penstock.coordinators.lettering import COLUMNS, letter_of, row_of, too_large
from penstock.coordinators.sqlite.store import Store
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

_PARK = f"insert or ignore into dead_letters ({', '.join(COLUMNS)}) values ({', '.join('?' * len(COLUMNS))})"
_THIS = "from dead_letters where pipeline = ?1 and incarnation = ?2 and lane = ?3 and position = ?4 and ordinal = ?5"
_IS_PARKED = f"select 1 {_THIS}"
_NOTE = f"insert or ignore into dead_rows (pipeline, table_name, row_key, letter) select ?1, ?6, ?7, number {_THIS}"

_OF_TABLE = "from json_each(?1) w cross join dead_rows r on r.pipeline = ?2 and r.table_name = w.value->>0"
_TOUCHING = f"""
select r.letter {_OF_TABLE} and r.row_key in (w.value->>1, '')
union all select r.letter {_OF_TABLE} and r.row_key <> '' where w.value->>1 is null
"""  # two parts, since with `or` no index would be used
_EARLIER = f"""
from ({_TOUCHING}) t cross join dead_letters l on l.number = t.letter
where (l.incarnation <> ?3 or l.lane <> ?4 or (l.position <= ?5 and (l.position, l.ordinal) <> (?5, ?6)))
"""
_FOLLOW = f"""
insert or ignore into dead_letters ({", ".join(COLUMNS)}) select {", ".join(f"?{number + 7}" for number in range(len(COLUMNS)))}
where exists (select 1 {_EARLIER} and l.holds) returning number
"""
_OVERTAKE = f"""
update dead_letters set overtaken = 1, overtaken_by = ?7 where not overtaken and number in (select l.number {_EARLIER})
"""
_RETURN = f"""
update dead_letters set overtaken = 0, overtaken_by = null where overtaken_by = ?7 and number in (select l.number {_EARLIER})
"""

_ROWS = "(select json_group_array(json_array(table_name, nullif(row_key, ''))) from dead_rows where letter = number)"
_HOLDS = f"select incarnation, lane, position, ordinal, {_ROWS}, holds, overtaken from dead_letters where"
_OF_PIPELINE, _OF_ROWS = "pipeline = ?2", f"number in ({_TOUCHING})"

_LETTERS = f"""
select {", ".join(COLUMNS)}, number from dead_letters where pipeline = ?
order by min(number) over (partition by incarnation, lane), position, ordinal
"""
_COUNT = """
insert into dead_counts (pipeline, dropped, passed, redriven) values (?, ?, ?, ?) on conflict do update set
dropped = dropped + excluded.dropped, passed = passed + excluded.passed, redriven = redriven + excluded.redriven
"""
_SUMMARY = """
select count(l.number), coalesce(sum(behind), 0),
    coalesce(max(c.dropped), 0), coalesce(max(c.passed), 0), coalesce(max(c.redriven), 0)
from (select ? as pipeline) p left join dead_counts c using (pipeline) left join dead_letters l using (pipeline)
where l.number is not null or c.pipeline is not null
"""


def park(store: Store, pipeline: str, letters: Sequence[DeadLetter]) -> None:
    """Keep letters, unless they are there already."""
    with _sized(letters):
        store.write_all(_PARK, [_stored(pipeline, letter) for letter in letters])
        _note(store, pipeline, letters)


@contextmanager
def _sized(letters: Sequence[DeadLetter]) -> Iterator[None]:
    """SQLite takes no value above a gigabyte, nor such a row; Python itself passes on no text above two."""
    try:
        yield
    except (sqlite3.DataError, OverflowError) as error:
        raise too_large(letters, error) from error


def give_back(store: Store, pipeline: str, letter: DeadLetter) -> None:
    """What it was the first to be sent past it has not overtaken."""
    store.write(_RETURN, *_where(pipeline, letter), letter.name)


def follow(store: Store, pipeline: str, letter: DeadLetter) -> bool:
    """Whether it is parked: it was, or now is, behind an earlier letter that holds a row of it. Otherwise those were overtaken."""
    where = _where(pipeline, letter)
    with _sized([letter]):
        found = store.rows(_FOLLOW, *where, *_stored(pipeline, letter))
    if found:
        _note(store, pipeline, [letter])
    if found or store.rows(_IS_PARKED, *_place(pipeline, letter)):
        return True
    store.write(_OVERTAKE, *where, letter.name)
    return False


def _where(pipeline: str, letter: DeadLetter) -> tuple[object, ...]:
    return _listed(letter.rows), *_place(pipeline, letter)


def _place(pipeline: str, letter: DeadLetter) -> tuple[object, ...]:
    return pipeline, letter.incarnation, letter.lane, *letter.change.place


def _note(store: Store, pipeline: str, letters: Iterable[DeadLetter]) -> None:
    rows = ((letter, table, key) for letter in letters for table, key in letter.rows)
    store.write_all(_NOTE, [(*_place(pipeline, letter), table, key or "") for letter, table, key in rows])


def holds(store: Store, pipeline: str, rows: Collection[Row] | None = None) -> list[Hold]:
    """The letters as others see them; all, or those that share one of these rows."""
    found = store.rows(f"{_HOLDS} {_OF_PIPELINE if rows is None else _OF_ROWS}", _listed(rows or ()), pipeline)
    return [
        Hold(
            incarnation,
            Lane(lane),
            (position, ordinal),
            tuple((table, key) for table, key in orjson.loads(held)),
            *map(bool, flags),
        )
        for incarnation, lane, position, ordinal, held, *flags in found
    ]


def letters(store: Store, pipeline: str) -> list[DeadLetter]:
    """All of them, those of one key in the order in which they must be sent."""
    return [_letter(row) for row in store.rows(_LETTERS, pipeline)]


def hold(store: Store, letter: DeadLetter, force: bool) -> bool:
    """Let later changes of its key wait for it."""
    return store.write("update dead_letters set holds = 1 where number = ? and (? or not overtaken)", letter.number, force)


def remove(store: Store, letter: DeadLetter, redriven: bool) -> bool:
    """Forget a letter, and count why."""
    found = store.rows("delete from dead_letters where number = ? returning pipeline", letter.number)
    for (pipeline,) in found:
        store.write("delete from dead_rows where letter = ?", letter.number)
        count(store, pipeline, dropped=int(not redriven), redriven=int(redriven))
    return bool(found)


def forget(store: Store, pipeline: str) -> None:
    """Forget all of them, and what was counted."""
    for table in ("dead_letters", "dead_rows", "dead_counts"):
        store.write(f"delete from {table} where pipeline = ?", pipeline)


def count(store: Store, pipeline: str, dropped: int = 0, passed: int = 0, redriven: int = 0) -> None:
    """Add to the totals."""
    store.write(_COUNT, pipeline, dropped, passed, redriven)


def summary(store: Store, pipeline: str) -> dict[str, int]:
    """How many there are and were, as Standing has them."""
    names = ("dead", "waiting", "dropped", "passed", "redriven")
    return dict(zip(names, store.rows(_SUMMARY, pipeline)[0], strict=True))


def _listed(rows: Collection[Row]) -> str:
    return orjson.dumps([*rows]).decode()


def _stored(pipeline: str, letter: DeadLetter) -> tuple[object, ...]:
    parked_at = letter.parked_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return tuple({**row_of(pipeline, letter), "parked_at": parked_at}.values())


def _letter(row: Sequence[Any]) -> DeadLetter:
    found = dict(zip((*COLUMNS, "number"), row, strict=True))
    return letter_of({**found, "parked_at": datetime.fromisoformat(found["parked_at"])})
