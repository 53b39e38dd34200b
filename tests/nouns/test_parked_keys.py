"""Which changes have to ask the store about letters: the quick look never overlooks what the closer one finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.change import Lane
from penstock.poison.parked_keys import Hold, ParkedKeys

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
def test_what_is_not_near_a_letter_is_worth_no_closer_look(holds: list[Hold], changes: list[tuple[tuple[int, int], str]]) -> None:
    parked_keys, places, keys = ParkedKeys(holds), [place for place, _ in changes], [key for _, key in changes]
    rows = [(("t", key),) for key in keys]
    near, about = parked_keys.near(places, keys), [Hold("cafe", Lane("main"), *one) for one in zip(places, rows, strict=True)]
    assert set(near) >= set(parked_keys.among(places, rows))
    assert set(near) >= {index for index, one in enumerate(about) if parked_keys.concerns(one)}


def test_other_keys_and_other_places_are_not_near_and_the_same_are() -> None:
    parked_keys = ParkedKeys([Hold("cafe", Lane("main"), (5, 0), (("t", KEYS[1]),))])
    assert parked_keys.near([(6, 0)], [KEYS[2]]) == []
    assert parked_keys.near([(4, 0), (6, 0)], [KEYS[2], KEYS[3]]) == []
    assert parked_keys.near([(4, 0), (5, 0)], [KEYS[2], KEYS[3]]) == [1]
    assert parked_keys.near([(6, 0), (7, 0), (8, 0)], [KEYS[1], KEYS[2], KEYS[1]]) == [0, 2]


def test_news_are_the_keys_of_letters_that_came_since_and_known_once_however_often_they_come() -> None:
    def hold(position: int, *keys: str | None) -> Hold:
        return Hold("cafe", Lane("main"), (position, 0), tuple(("t", key) for key in keys))

    parked_keys = ParkedKeys([hold(1, KEYS[0]), hold(2, KEYS[1])])
    then = parked_keys.moment
    assert parked_keys.news(then) == []
    parked_keys.add(hold(3, KEYS[2], None))
    later = parked_keys.moment
    for _ in range(100):
        parked_keys.forget([("t", KEYS[0])])
        parked_keys.add(hold(1, KEYS[0]))
    assert set(parked_keys.news(0)) == {*KEYS[:3], None}
    assert sorted(map(str, parked_keys.news(then))) == sorted(map(str, [KEYS[0], KEYS[2], None])), "each once"
    assert parked_keys.news(later) == [KEYS[0]]
    assert parked_keys.news(parked_keys.moment) == []
