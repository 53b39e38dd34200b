"""The order in which letters must be sent, and which of them belong together."""

from __future__ import annotations

from penstock.change import Change, Lane, Op
from penstock.letter import DeadLetter, ordered
from penstock.running.redrive import chains

LOG, RANGE = Lane("log"), Lane("snapshot:1")


def letter(number: int, position: int, key: str, lane: Lane = LOG, *, whole: bool = False) -> DeadLetter:
    op = Op.UPDATE if whole else Op.REFRESH  # of an update without `before` nobody knows which row it was
    change = Change(position, op, "t", f'{{"name":"{key}"}}', None, "{}")
    return DeadLetter("cafe", lane, change, "sink", number=number)


def numbers(letters: list[DeadLetter]) -> list[int | None]:
    return [one.number for one in letters]


def test_of_one_row_the_lane_that_was_parked_first_comes_first_whatever_else_its_lane_has() -> None:
    found = [letter(1, 40, "x"), letter(3, 60, "row"), letter(2, 70, "row", RANGE), letter(4, 71, "row", RANGE), letter(5, 41, "x")]
    assert numbers(ordered(found)) == [1, 2, 4, 3, 5]


def test_a_letter_about_a_whole_table_is_bound_to_all_of_its_rows() -> None:
    found = [letter(1, 5, "a"), letter(2, 6, "?", whole=True), letter(3, 7, "b")]
    assert found[1].rows == (("t", None),)
    for chosen in found:
        assert numbers(chains(found, lambda one, chosen=chosen: one is chosen)) == [1, 2, 3]


def test_letters_that_share_no_row_go_their_own_ways() -> None:
    found = [letter(1, 5, "a"), letter(2, 6, "b"), letter(3, 7, "a")]
    assert numbers(chains(found, lambda one: one.number == 3)) == [1, 3]
    assert numbers(ordered(found)) == [1, 2, 3]
