"""Which changes have to ask the store about letters: the quick look never overlooks what the closer one finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.change import Lane
from penstock.holding import Hold, Holding

KEYS = [f'{{"id":{number}}}' for number in range(4)]
PLACES = st.tuples(st.integers(1, 6), st.integers(0, 1))
ROWS = st.tuples(st.sampled_from("tu"), st.sampled_from([*KEYS, None]))
HOLDS = st.builds(
    Hold,
    st.sampled_from(["cafe", "beef"]),
    st.sampled_from([Lane("main"), Lane("other")]),
    PLACES,
    st.lists(ROWS, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
)
CHANGES = st.dictionaries(PLACES, st.sampled_from(KEYS), min_size=1, max_size=4).map(lambda found: sorted(found.items()))


@given(st.lists(HOLDS, max_size=4), CHANGES)
def test_what_is_far_from_all_letters_is_worth_no_closer_look(
    holds: list[Hold], changes: list[tuple[tuple[int, int], str]]
) -> None:
    holding, places, keys = Holding(holds), [place for place, _ in changes], [key for _, key in changes]
    rows = [(("t", key),) for key in keys]
    if holding.is_far(places[0], places, keys):
        assert holding.among(places, rows) == []
        about = [Hold("cafe", Lane("main"), place, row) for place, row in zip(places, rows, strict=True)]
        assert not any(map(holding.concerns, about))


def test_other_keys_and_other_places_are_far_and_the_same_are_not() -> None:
    holding = Holding([Hold("cafe", Lane("main"), (5, 0), (("t", KEYS[1]),))])
    assert holding.is_far((6, 0), [(6, 0)], [KEYS[2]])
    assert holding.is_far((4, 0), [(4, 0), (6, 0)], [KEYS[2], KEYS[3]])
    assert not holding.is_far((4, 0), [(4, 0), (5, 0)], [KEYS[2], KEYS[3]])
    assert not holding.is_far((6, 0), [(6, 0)], [KEYS[1]])
