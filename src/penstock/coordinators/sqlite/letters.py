"""Dead letters in the state file: an ordinary table, and beside it the rows that each of them is about."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.change import CHANGES, Change, Lane, Op, values
from penstock.coordinators.sqlite.store import Store
from penstock.poison import DeadLetter, Hold
from penstock.rows import Row

_FIELDS = {"table": "table_name", "transaction": "transaction_id"}
_CHANGE = [_FIELDS.get(name, name) for name in CHANGES.names]
_ABOUT = ("pipeline", "incarnation", "lane", "stage", "code", "message", "tries", "epoch", "behind", "holds", "parked_at")

_PARK = f"""
insert or ignore into dead_letters ({", ".join((*_ABOUT, *_CHANGE))}) values ({", ".join("?" * (len(_ABOUT) + len(_CHANGE)))})
"""
_NUMBER = "select number from dead_letters where pipeline = ? and incarnation = ? and lane = ? and position = ? and ordinal = ?"
_NOTE = """
insert into dead_rows (pipeline, table_name, row_key, letter) select ?, value->>0, coalesce(value->>1, ''), ? from json_each(?)
"""

_MATCH = "r.table_name = w.value->>0 and (r.row_key in (coalesce(w.value->>1, ''), '') or w.value->>1 is null)"
_SHARING = f"""
select distinct l.number, l.holds from json_each(?) w cross join dead_rows r on r.pipeline = ? and {_MATCH}
join dead_letters l on l.number = r.letter
where l.incarnation <> ? or l.lane <> ? or (l.position <= ? and (l.position, l.ordinal) <> (?, ?))
"""
_OVERTAKE = "update dead_letters set overtaken = 1 where number = ? and not overtaken"

_ROWS = "(select json_group_array(json_array(table_name, nullif(row_key, ''))) from dead_rows where letter = number)"
_HOLDS = f"select incarnation, lane, position, ordinal, {_ROWS}, holds, overtaken from dead_letters where pipeline = ?"
_OF_ROWS = f"and number in (select r.letter from json_each(?) w cross join dead_rows r on r.pipeline = ? and {_MATCH})"

_LETTERS = f"""
select {", ".join((*_ABOUT, *_CHANGE))}, overtaken, number from dead_letters where pipeline = ?
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


def park(store: Store, pipeline: str, letter: DeadLetter) -> None:
    """Keep a letter, unless it is there already."""
    if store.write(_PARK, *_about(pipeline, letter), *_stored(letter.change)):
        store.write(_NOTE, pipeline, _number(store, pipeline, letter), _listed(letter.rows))


def follow(store: Store, pipeline: str, letter: DeadLetter) -> bool:
    """Whether it is parked: it was, or now is, behind an earlier letter that holds a row of it. Otherwise those were overtaken."""
    if _number(store, pipeline, letter) is not None:
        return True
    position, ordinal = letter.change.place
    where = (_listed(letter.rows), pipeline, letter.incarnation, letter.lane, position, position, ordinal)
    earlier = store.rows(_SHARING, *where)
    if any(holds for _, holds in earlier):
        park(store, pipeline, letter)
        return True
    for number, _ in earlier:
        store.write(_OVERTAKE, number)
    return False


def holds(store: Store, pipeline: str, rows: Collection[Row] | None = None) -> list[Hold]:
    """The letters as others see them; all, or those that share one of these rows."""
    of_rows = () if rows is None else (_listed(rows), pipeline)
    found = store.rows(_HOLDS if rows is None else f"{_HOLDS} {_OF_ROWS}", pipeline, *of_rows)
    return [
        Hold(
            incarnation, Lane(lane), (position, ordinal), tuple((table, key) for table, key in json.loads(held)), *map(bool, flags)
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


def _number(store: Store, pipeline: str, letter: DeadLetter) -> int | None:
    found = store.rows(_NUMBER, pipeline, letter.incarnation, letter.lane, *letter.change.place)
    return found[0][0] if found else None


def _listed(rows: Collection[Row]) -> str:
    return json.dumps([*rows])


def _about(pipeline: str, letter: DeadLetter) -> tuple[object, ...]:
    parked_at = letter.parked_at.astimezone(UTC).isoformat(timespec="milliseconds")
    why = (letter.stage, letter.code, letter.message, letter.tries, letter.epoch, letter.is_behind, letter.holds)
    return (pipeline, letter.incarnation, letter.lane, *why, parked_at)


def _stored(change: Change) -> tuple[object, ...]:
    """Its fields; no ordinal is 0, so that it can be part of a key: ordinals begin at 1."""
    return tuple(values(change.replace(ordinal=change.ordinal or 0)))


def _letter(row: Sequence[Any]) -> DeadLetter:
    about, change, (overtaken, number) = row[: len(_ABOUT)], row[len(_ABOUT) : -2], row[-2:]
    _, incarnation, lane, stage, code, message, tries, epoch, behind, holds, parked_at = about
    position, op, *fields, ordinal = change
    made = Change(position, Op(op), *fields).replace(ordinal=ordinal or None)
    return DeadLetter(
        incarnation=incarnation,
        lane=Lane(lane),
        change=made,
        stage=stage,
        code=code,
        message=message,
        tries=tries,
        epoch=epoch,
        is_behind=bool(behind),
        holds=bool(holds),
        is_overtaken=bool(overtaken),
        parked_at=datetime.fromisoformat(parked_at),
        number=number,
    )
