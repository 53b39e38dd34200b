"""Every history of steps with dead letters has the same outcome in tables as in memory, where the state topic has its letters."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from messages import to_change
from penstock.change import Change, Lane, Op
from penstock.coordinators.kafka.letters import Letters, read, written
from penstock.coordinators.letters import Storage, alter, take
from penstock.coordinators.postgres.letters import PostgresLetters
from penstock.coordinators.postgres.store import StateStore as PostgresStore
from penstock.coordinators.sqlite.letters import SqliteLetters
from penstock.coordinators.sqlite.store import StateStore as SqliteStore
from penstock.letter import DeadLetter, in_order
from penstock.message import Message, document, native

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
STEPS = ["park", "park", "park", "follow", "follow", "give_back", "hold", "remove"]
ROWS = [("t", '{"id":1}'), ("t", '{"id":2}'), ("t", None), ("u", '{"id":1}')]


@contextmanager
def in_sqlite(test: pytest.FixtureRequest) -> Iterator[Any]:
    path: Path = test.getfixturevalue("tmp_path") / "state.db"
    with closing(SqliteStore(path, creates=True)) as store, store.atomic():
        yield lambda pipeline: SqliteLetters(store, pipeline)


@contextmanager
def in_postgres(test: pytest.FixtureRequest) -> Iterator[Any]:
    with (
        closing(PostgresStore(f"{test.getfixturevalue('empty_state')}?connect_timeout=900", creates=True)) as store,
        store.atomic(),
    ):
        yield lambda pipeline: PostgresLetters(store, pipeline)


@pytest.fixture(params=[in_sqlite, in_postgres], ids=lambda one: one.__name__)
def tables(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(request) as made:
        yield made


def drawn(dice: random.Random) -> DeadLetter:
    """A letter about one row, about two, or about all rows of its table."""
    position, key = dice.randrange(3), dice.choice(['{"id":1}', '{"id":2}'])
    before = dice.choice([None, None, '{"id":1}', '{"id":2}', '{"other":1}'])
    op = Op.UPDATE if before else Op.INSERT
    change = Change(position, op, dice.choice("tu"), key, before, "{}", ordinal=dice.choice([None, 1, 2]))
    lane, life = Lane(dice.choice(["main", "main", "range"])), dice.choice(["cafe", "cafe", "cafe", "beef"])
    return DeadLetter(life, lane, change, "sink", "c", "m", holds=dice.random() < 0.5, parked_at=NOW)


def numbers(storage: Storage) -> dict[str, int | None]:
    """The number of each letter, by its name."""
    return {one.name: one.number for one in in_order(storage.all())}


def shown(storage: Storage) -> Any:
    """All that a storage tells, without the numbers; the rows of a letter have no order."""
    letters = [(one.name, one.rows, one.holds, one.is_overtaken, one.overtaken_by) for one in in_order(storage.all())]
    holds = [storage.holds(rows) for rows in (None, [], *([row] for row in ROWS))]
    return (
        letters,
        storage.summary(),
        [sorted(repr(one._replace(rows=sorted(map(repr, one.rows)))) for one in some) for some in holds],
    )


def taken(storage: Storage, step: str, letter: DeadLetter, chance: bool) -> Any:
    """The answer to a step with this letter, or with one that is parked."""
    if step in ("park", "follow", "give_back"):
        return take(step, storage, [letter])
    parked = numbers(storage)
    number = parked[sorted(parked)[letter.change.position % len(parked)]] if parked else None
    return alter(step, storage, number, **{"force" if step == "hold" else "redriven": chance})


@pytest.mark.parametrize("seed", range(25))
def test_a_history_of_steps_has_the_same_outcome_in_tables_as_in_memory(tables: Any, seed: int) -> None:
    dice, memory, table = random.Random(seed), Letters(), tables(f"p{seed}")
    for _ in range(25):
        step, letter, chance = dice.choice(STEPS), drawn(dice), dice.random() < 0.5
        assert taken(table, step, letter, chance) == taken(memory, step, letter, chance), (step, letter.name)
        assert shown(table) == shown(memory), (step, letter.name)
    assert memory.all(), "nothing was compared"


ROW = Change(7, Op.UPDATE, "t", '{"id":1}', '{"id":1}', "{}", 5, '{"new_row_id":1}', "odd", 9, 3, (("a", b"\xff"), ("b", None)), 4)
MESSAGE = to_change(Message("t", b"\xff", b"\x00\xfe", (("raw", b"\xfd"),)), 8)


def test_every_field_of_a_change_is_kept_and_a_message_as_its_document(tables: Any) -> None:
    given, storage = [DeadLetter("cafe", Lane("main"), one, "sink", parked_at=NOW) for one in (ROW, MESSAGE)], tables("p")
    take("park", storage, given)
    kept = [one.change for one in in_order(storage.all())]
    assert kept == [read(json.loads(json.dumps(written(one)))).change for one in given] == [ROW, document(MESSAGE)]
    assert native(kept[1]) == MESSAGE
