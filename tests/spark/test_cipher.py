"""Tasks on their way to workers of other hosts: only the key of the run opens them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import EngineFailed
from penstock.spark.cipher import KEY, decrypt, encrypt, made_key


@given(st.binary(max_size=300))
def test_a_word_is_opened_by_its_key_and_shows_nothing_without_it(data: bytes) -> None:
    key = made_key()
    word = encrypt(data, key)
    assert decrypt(word, key) == data
    assert word.split() == [word]
    assert not word.startswith("/")
    assert encrypt(data, key) != word
    for other in (made_key(), ""):
        with pytest.raises(EngineFailed, match=KEY):
            decrypt(word, other)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_an_altered_word_is_refused(data: bytes, drawn: st.DataObject) -> None:
    key = made_key()
    word = encrypt(data, key)
    place = drawn.draw(st.integers(0, len(word) - 1))
    letter = drawn.draw(st.sampled_from([one for one in "0aA~" if one != word[place]]))
    with pytest.raises(EngineFailed, match=KEY):
        decrypt(word[:place] + letter + word[place + 1 :], key)
