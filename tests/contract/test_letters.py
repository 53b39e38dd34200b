"""What every coordinator must keep true of dead letters, and what the policy makes of them."""

from __future__ import annotations

import random
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from test_coordinator import RIGS

from penstock.change import Change, Lane, Op
from penstock.coordinator import Tally, Term
from penstock.cursor import Cursor, Watermark
from penstock.errors import DeliveryExhausted, LetterTooLarge, StateUnavailable, TermHeld, TermLost
from penstock.event import ChangeDropped, ChangeParked, ChangesParked, ChangesPassed, ChangesWaited, Event
from penstock.letter import DeadLetter
from penstock.poison.condemned import TOLD, Circumstances, Condemned
from penstock.poison.policy import Poison
from penstock.rows import rows_of_change

LANE = Lane("main")
ERROR = DeliveryExhausted("status 422; changes 5..5 were not taken in 1 tries")
PAGE = (Path(__file__).parents[2] / "docs" / "dead-letters.md").read_text()
IN_FILE, IN_POSTGRES = re.findall(r"```sql\n(.+?)```", PAGE, re.DOTALL)


def change(position: int, key: object = 1, op: Op = Op.INSERT, before: str | None = None, **more: Any) -> Change:
    return Change(position, op, "t", f'{{"id":{key}}}', before, f'{{"id":{key}, "total": 1.50}}', position * 1000, **more)


def letter(position: int, key: object = 1, **more: Any) -> DeadLetter:
    return DeadLetter("cafe", LANE, change(position, key), "sink", "sink.exhausted", "status 422", 3, 1, **more)


def concerned(poison: Poison, *changes: Change) -> list[int]:
    """The positions of those that may be concerned."""
    found = poison.parked_keys.among([one.place for one in changes], [rows_of_change(one) for one in changes])
    return [changes[index].position for index in found]


@dataclass
class Stage:
    """A lane that is claimed."""

    state: Any
    term: Term
    claim: Any
    told: list[Event]

    def poison(self, then: Any = "dead-letter", keys: Any = "wait", gathers: int = 1) -> Poison:
        return Poison(then, keys, self.claim, Circumstances("p", LANE, "cafe", 1, self.told.extend), gathers)

    def parked(self) -> list[int]:
        return [one.change.position for one in self.state.letters("p")]


@pytest.fixture(params=RIGS)
def make(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return lambda: RIGS[request.param](request, 60.0)


@pytest.fixture
def stage(make: Callable[[], Any]) -> Iterator[Stage]:
    state = make()
    with ExitStack() as stack:
        term = stack.enter_context(closing(state.candidate("p", "leader"))).campaign()
        state.place(term, {LANE: Watermark(Cursor("c0"), 0)})
        yield Stage(state, term, stack.enter_context(state.claim(term, LANE, 1)), [])


def test_a_letter_comes_back_whole_and_a_second_one_of_the_same_change_is_none(stage: Stage) -> None:
    before = letter(5, is_overtaken=True)
    stage.claim.park([before])
    stage.claim.park([replace(before, message="again")])
    [found] = stage.state.letters("p")
    assert found == replace(before, number=found.number, parked_at=found.parked_at)
    assert abs((found.parked_at - before.parked_at).total_seconds()) < 0.002
    assert (stage.state.pipeline_state("p").dead, stage.state.pipeline_state("p").waiting) == (1, 0)


def test_a_letter_that_the_store_refuses_for_its_size_halts_and_is_named(request: pytest.FixtureRequest, stage: Stage) -> None:
    if (large := _too_large_for(request.node.callspec.params["make"], stage.claim)) is None:
        stage.claim.park([letter(5, f'"{"x" * 3_000_000}"')])
        assert stage.parked() == [5], "a letter has as many records of Kafka as it needs"
        return
    with pytest.raises(LetterTooLarge, match=r'change 5 of t, key \{"id":') as caught:
        stage.claim.park([letter(4), large, letter(6)])
    assert len(str(caught.value)) < 1000
    assert "set sink.retry.then to drop" in caught.value.remedy
    assert stage.parked() == [], "some of what is parked together was parked"
    stage.claim.park([letter(7)])
    assert stage.parked() == [7]


def _too_large_for(store: str, claim: Any) -> DeadLetter | None:
    """A letter above a limit of the store: of SQLite's own, lowered here, or of an index of Postgres."""
    if "sqlite" in store:
        claim._store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        return letter(5, f'"{"x" * 60_000}"')
    return letter(5, f'"{random.Random(5).randbytes(10_000).hex()}"') if "postgres" in store else None


def test_letters_of_another_pipeline_lane_or_life_of_the_source_are_others(stage: Stage) -> None:
    stage.claim.park([letter(5), replace(letter(5), lane=Lane("range")), replace(letter(5), incarnation="beef")])
    assert stage.parked() == [5, 5, 5]
    assert stage.state.letters("q") == []


def test_letters_are_sent_in_the_order_of_their_lane_and_lanes_in_the_order_they_came(stage: Stage) -> None:
    stage.claim.park([replace(letter(90), lane=Lane("range")), letter(7), letter(5), replace(letter(2), lane=Lane("range"))])
    assert stage.parked() == [2, 90, 5, 7]


def test_a_claim_that_another_attempt_has_replaced_parks_nothing(make: Callable[[], Any]) -> None:
    state = make()
    with closing(state.candidate("p", "leader")) as leader:
        old = leader.campaign()
        state.place(old, {LANE: Watermark(Cursor("c0"), 0)})
        with state.claim(old, LANE, 1) as claim:
            claim.park([letter(1)])
            leader.campaign()
            for deed in (claim.park, claim.follow, claim.give_back):
                with pytest.raises(TermLost):
                    deed([letter(2)])
    assert [one.change.position for one in state.letters("p")] == [1]


def test_halting_raises_the_error_and_keeps_nothing(stage: Stage) -> None:
    with pytest.raises(DeliveryExhausted):
        stage.poison("halt").condemn(change(5), ERROR)
    assert stage.parked() == []
    assert stage.told == []


def test_dropping_counts_and_tells_and_keeps_nothing(stage: Stage) -> None:
    poison = stage.poison("drop")
    poison.condemn(change(5), ERROR)
    assert stage.parked() == []
    assert [type(event) for event in stage.told] == [ChangeDropped]
    poison.settle(4)
    assert poison.dropped == 0, "it comes again after a crash"
    poison.settle(5)
    stage.claim.advance(Watermark(Cursor("c5"), 5, 5), Tally(0, 0.0, poison.dropped, 0))
    assert stage.state.pipeline_state("p").dropped == 1


def test_later_changes_of_a_parked_key_wait_and_others_go_on(stage: Stage) -> None:
    poison = stage.poison()
    poison.condemn(change(5), ERROR, tries=3)
    assert [one.position for one in poison.sift([change(6, 2), change(7), change(8, 3), change(9)])] == [6, 8]
    assert stage.parked() == [5, 7, 9]
    assert [one.is_behind for one in stage.state.letters("p")] == [False, True, True]
    poison.park()
    assert [type(event) for event in stage.told] == [ChangeParked, ChangesWaited]
    assert (stage.state.pipeline_state("p").dead, stage.state.pipeline_state("p").waiting) == (3, 2)


def test_letters_are_parked_together_at_the_latest_when_progress_is_to_be_recorded(stage: Stage) -> None:
    poison = stage.poison(gathers=3)
    poison.condemn(change(5), ERROR)
    poison.condemn(change(6, 2), ERROR)
    assert (stage.parked(), stage.told, len(poison.reach((99, 0)))) == ([], [], 2), "they wait for others"
    poison.park()
    assert (stage.parked(), len(stage.told)) == ([5, 6], 2)
    for position in (7, 8, 9):
        poison.condemn(change(position, position), ERROR)
    assert stage.parked() == [5, 6, 7, 8, 9], "there are enough"
    poison.condemn(change(10, 10), ERROR)
    poison.secure()
    assert (stage.parked()[-1], len(stage.told)) == (10, 6)


def test_of_many_letters_that_are_parked_together_the_first_are_told_one_by_one_and_the_others_counted(stage: Stage) -> None:
    poison = stage.poison(gathers=100)
    for position in range(1, 3 * TOLD + 1):
        poison.condemn(change(position, position), ERROR)
    poison.park()
    assert len(stage.parked()) == 3 * TOLD
    *first, last = stage.told
    assert [event.position for event in first if isinstance(event, ChangeParked)] == list(range(1, TOLD + 1))
    assert last == ChangesParked(pipeline="p", changes=2 * TOLD)


def test_what_comes_behind_a_letter_that_is_not_parked_yet_waits_for_it_all_the_same(stage: Stage) -> None:
    poison = stage.poison(gathers=100)
    poison.condemn(change(5), ERROR)
    assert concerned(poison, change(6, 2), change(7)) == [7]
    assert [one.position for one in poison.sift([change(6, 2), change(7)])] == [6]
    assert stage.parked() == [5, 7]
    poison.park()
    assert [type(event) for event in stage.told] == [ChangeParked, ChangesWaited]


def test_what_a_store_could_not_park_is_parked_the_next_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = stage.poison(gathers=2)
    poison.condemn(change(5), ERROR)
    with monkeypatch.context() as away:
        away.setattr(stage.claim, "park", refuse)
        with pytest.raises(StateUnavailable):
            poison.park()
    assert (stage.parked(), stage.told) == ([], [])
    poison.park()
    assert (stage.parked(), len(stage.told)) == ([5], 1)


def refuse(letters: Any) -> None:
    raise StateUnavailable("away")


def test_who_comes_after_a_crash_knows_the_letters_and_what_came_before_them_does_not_wait(stage: Stage) -> None:
    stage.poison().condemn(change(5), ERROR)
    heir = stage.poison()
    assert heir.has_letters
    assert stage.poison("halt").has_letters
    assert [one.position for one in heir.sift([change(3), change(4, 2), change(5), change(7)])] == [3, 4]
    assert stage.parked() == [5, 7]
    assert concerned(heir, change(8, 2), change(9)) == [9]


def test_what_waits_may_be_parked_before_it_is_to_be_sent_and_is_asked_for_once_more_if_not(stage: Stage) -> None:
    poison = stage.poison()
    poison.condemn(change(5), ERROR)
    assert poison.keep_back([change(6, 2), change(7)]) == {(7, 0)}
    assert [one.position for one in poison.sift([change(6, 2), change(8)])] == [6]
    assert (stage.parked(), len(poison.reach((99, 0)))) == ([5, 7, 8], 3)


def test_where_keys_go_on_nothing_is_overtaken_before_it_is_sent(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    assert poison.keep_back([change(7)]) == set()
    assert not stage.state.letters("p")[0].is_overtaken
    assert len(poison.sift([change(7)])) == 1
    assert stage.state.letters("p")[0].is_overtaken


def test_an_update_that_changes_the_key_makes_both_keys_wait(stage: Stage) -> None:
    poison = stage.poison()
    poison.condemn(change(5, 1), ERROR)
    moved = change(6, 2, Op.UPDATE, '{"id":1}')
    assert [one.position for one in poison.sift([moved, change(7, 2), change(8, 3)])] == [8]
    assert stage.parked() == [5, 6, 7]


def test_an_update_of_an_unknown_old_key_waits_for_its_whole_table_and_makes_it_wait(stage: Stage) -> None:
    poison = stage.poison()
    poison.condemn(change(5, 1), ERROR)
    unknown = change(6, 2, Op.UPDATE, '{"other":1}')
    elsewhere = change(8, 4).replace(table="u")
    assert [one.position for one in poison.sift([unknown, change(7, 3), elsewhere])] == [8]
    assert stage.parked() == [5, 6, 7]


def test_what_tells_of_a_schema_waits_for_nothing_and_nothing_waits_for_it(stage: Stage) -> None:
    poison = stage.poison()
    schema = change(5).replace(op=Op.SCHEMA, before=None)
    poison.condemn(schema, ERROR)
    poison.condemn(change(6), ERROR)
    assert [one.position for one in poison.sift([change(7, 2), schema.replace(position=8), change(9)])] == [7, 8]


def test_where_keys_go_on_they_pass_the_letter_which_is_marked_before_they_do(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    assert not stage.state.letters("p")[0].is_overtaken
    for position in (6, 7):
        assert len(poison.sift([change(position), change(position, 2)])) == 2
    assert stage.state.letters("p")[0].is_overtaken
    assert (stage.parked(), poison.passed) == ([5], 0)
    poison.sift([change(7)])  # once more, as after a failed try
    poison.settle(9)
    assert poison.passed == 0, "it has not arrived yet"
    poison.reach((6, 0))
    poison.settle(5)
    assert poison.passed == 0, "it comes again after a crash"
    poison.settle(6)
    assert poison.passed == 1
    poison.reach((9, 0))
    poison.settle(9)
    assert poison.passed == 2
    poison.park()
    poison.park()
    assert stage.told[1:] == [ChangesPassed(pipeline="p", changes=2)], "both in one sum, once"
    assert not stage.state.hold(stage.state.letters("p")[0])
    assert stage.state.hold(stage.state.letters("p")[0], force=True)


def overtaken(stage: Stage) -> dict[int, bool]:
    return {one.change.position: one.is_overtaken for one in stage.state.letters("p")}


def test_what_is_refused_in_its_turn_has_passed_nothing(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    assert poison.sift([change(6)])
    assert overtaken(stage) == {5: True}, "before it is sent"
    poison.condemn_all([Condemned(change(6), ERROR, is_refused=True)])
    assert overtaken(stage) == {5: False, 6: False}
    assert poison.sift([change(7)])
    assert overtaken(stage) == {5: True, 6: True}
    poison.reach((9, 0))
    poison.settle(9)
    assert poison.passed == 1
    assert poison.sift([change(10)])
    poison.condemn_all([Condemned(change(10), ERROR, is_refused=True)])
    assert overtaken(stage) == {5: True, 6: True, 10: False}, "something else has passed them"


@pytest.mark.parametrize("deed", ["give_back", "holds"])
def test_what_has_passed_nothing_frees_the_earlier_letter_also_where_the_store_was_away_just_then(stage: Stage, deed: str) -> None:
    class Away:
        """The claim, of which this deed fails once when it is asked to."""

        is_away = False

        def __getattr__(self, name: str) -> Any:
            if name == deed and self.is_away:
                self.is_away = False
                raise StateUnavailable("away")
            return getattr(stage.claim, name)

    away = Away()
    poison = Poison("dead-letter", "go-on", away, Circumstances("p", LANE, "cafe", 1, stage.told.extend))  # type: ignore[arg-type]
    poison.condemn(change(5), ERROR)
    assert poison.sift([change(6)])
    away.is_away = True
    with pytest.raises(StateUnavailable):
        poison.condemn_all([Condemned(change(6), ERROR, is_refused=True)])
    assert concerned(poison, change(7)) == [7]
    poison.park()
    assert overtaken(stage) == {5: False, 6: False}
    assert poison.sift([change(7)])
    assert overtaken(stage) == {5: True, 6: True}
    assert len([event for event in stage.told if isinstance(event, ChangeParked)]) == 2, "one event for each"


def test_what_may_have_arrived_after_all_has_passed_it(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    poison.sift([change(6)])
    poison.condemn(change(6), ERROR)
    assert overtaken(stage) == {5: True, 6: False}
    poison.reach((6, 0))
    poison.settle(6)
    assert poison.passed == 0


def test_what_a_predecessor_has_sent_may_have_arrived(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    poison.sift([change(6)])
    heir = stage.poison(keys="go-on")
    assert heir.sift([change(6)])
    heir.condemn_all([Condemned(change(6), ERROR, is_refused=True)])
    assert overtaken(stage) == {5: True, 6: False}


def test_after_that_also_a_change_of_another_row_of_the_letter_marks_it_before_it_is_sent(stage: Stage) -> None:
    stage.poison(keys="go-on").condemn(change(5, 2, Op.UPDATE, '{"id":1}'), ERROR)
    poison = stage.poison(keys="go-on")
    poison.sift([change(6, 1), change(7, 2)])
    poison.condemn_all([Condemned(change(6, 1), ERROR, is_refused=True)])
    assert overtaken(stage) == {5: False, 6: False}, "the other one is asked about again before it is sent again"
    assert poison.sift([change(8, 2)])
    assert overtaken(stage) == {5: True, 6: False}


def test_what_is_refused_though_a_later_one_of_its_row_has_arrived_does_not_free_the_earlier_letter(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    assert len(poison.sift([change(6), change(7)])) == 2
    poison.condemn_all([Condemned(change(6), ERROR, is_overtaken=True, is_refused=True)])
    assert overtaken(stage) == {5: True, 6: True}


def test_a_change_of_the_same_position_in_another_life_of_the_source_frees_nothing(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    poison.sift([change(6)])
    stage.claim.give_back([replace(letter(6), incarnation="beef"), replace(letter(6), lane=Lane("range"))])
    assert overtaken(stage) == {5: True}
    stage.claim.give_back([letter(6)])
    assert overtaken(stage) == {5: False}


def test_a_key_waits_from_the_moment_its_letter_is_being_sent_again_also_where_keys_go_on(stage: Stage) -> None:
    poison = stage.poison(keys="go-on")
    poison.condemn(change(5), ERROR)
    [first] = stage.state.letters("p")
    assert stage.state.hold(first)
    assert poison.sift([change(6)]) == []
    assert stage.parked() == [5, 6]


def test_removing_the_last_letter_of_a_key_frees_it_and_no_sooner(stage: Stage) -> None:
    poison = stage.poison()
    poison.condemn(change(5), ERROR)
    assert poison.sift([change(6)]) == []
    first, second = stage.state.letters("p")
    assert stage.state.remove(first, redriven=True)
    assert not stage.state.remove(first, redriven=True)
    assert poison.sift([change(7)]) == []
    assert stage.parked() == [6, 7]
    assert stage.state.remove(second, redriven=True)
    assert stage.state.remove(stage.state.letters("p")[0], redriven=False)
    assert [one.position for one in poison.sift([change(8), change(9, 2)])] == [8, 9]
    standing = stage.state.pipeline_state("p")
    assert (standing.dead, standing.redriven, standing.dropped) == (0, 2, 1)


def test_a_later_letter_of_a_freed_place_still_holds_its_key(stage: Stage) -> None:
    stage.claim.park([letter(5), letter(7)])
    poison = stage.poison()
    stage.state.remove(stage.state.letters("p")[0], redriven=True)
    assert [one.position for one in poison.sift([change(5), change(6)])] == [5, 6]
    assert poison.sift([change(8)]) == []
    assert stage.parked() == [7, 8]


def test_only_one_process_at_a_time_sends_letters_again(stage: Stage) -> None:
    with stage.state.redriving("p"), stage.state.redriving("q"), pytest.raises(TermHeld), stage.state.redriving("p"):
        pass
    with stage.state.redriving("p"):
        pass


def test_forgetting_a_pipeline_forgets_its_letters_and_counts(stage: Stage) -> None:
    stage.claim.park([letter(5)])
    stage.claim.advance(Watermark(Cursor("c5"), 5, 5), Tally(0, 0.0, 2, 3))
    stage.state.forget(stage.term)
    standing = stage.state.pipeline_state("p")
    assert (standing.dead, standing.dropped, standing.passed, stage.parked()) == (0, 0, 0, [])


def test_threads_that_park_and_advance_at_once_lose_nothing(stage: Stage) -> None:
    poison = stage.poison()

    def condemn(start: int) -> None:
        for position in range(start, 200, 4):
            poison.condemn(change(position, position), ERROR)

    threads = [threading.Thread(target=condemn, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for position in range(200):
        stage.claim.advance(Watermark(Cursor(f"c{position}"), position, position), Tally(1))
    for thread in threads:
        thread.join()
    assert sorted(stage.parked()) == list(range(200))
    assert stage.state.pipeline_state("p").delivered == 200


@dataclass(frozen=True)
class Table:
    """The letters as whoever likes reads them, and how the page says that it is done."""

    opened: Callable[[Any], Any]
    name: str
    example: str
    flag: type
    moment: type


TABLES = {
    "sqlite": Table(lambda state: sqlite3.connect(state.path), "dead_letters", IN_FILE, int, str),
    "postgres": Table(lambda state: psycopg.connect(state.dsn), "penstock_state.dead_letters", IN_POSTGRES, bool, datetime),
}
"""Of the stores that have one: Kafka has none."""

in_tables = pytest.mark.parametrize(("make", "table"), TABLES.items(), ids=TABLES, indirect=["make"])


def documented_columns() -> list[str]:
    rows = PAGE.split("| column | meaning |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@in_tables
def test_the_letters_are_an_ordinary_table_with_the_columns_that_are_documented(stage: Stage, table: Table) -> None:
    stage.claim.park([letter(5)])
    with closing(table.opened(stage.state)) as db:
        found = db.execute(f"select * from {table.name}")
        [row] = found.fetchall()
    got = dict(zip([about[0] for about in found.description], row, strict=True))
    assert sorted(got) == sorted(documented_columns())
    assert (got["position"], got["ordinal"], got["table_name"], got["tries"]) == (5, 0, "t", 3)
    assert (got["key"], got["after"]) == ('{"id":1}', '{"id":1, "total": 1.50}')
    assert {type(got[name]) for name in ("behind", "holds", "overtaken")} == {table.flag}
    assert type(got["parked_at"]) is table.moment


@in_tables
def test_the_documented_query_finds_the_letters_that_wait_behind_no_other(stage: Stage, table: Table) -> None:
    stage.claim.park([letter(5), letter(6, is_behind=True)])
    with closing(table.opened(stage.state)) as db:
        [(_, position, key, total, *why, _)] = db.execute(table.example.replace("'orders'", "'p'")).fetchall()
    assert (position, int(key), float(total), why) == (5, 1, 1.5, ["sink.exhausted", "status 422"])
