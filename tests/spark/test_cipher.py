"""Tasks on their way to workers of other hosts: only the key of the run opens them."""

from __future__ import annotations

import base64

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


@given(st.binary(max_size=40), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_an_altered_word_is_refused(data: bytes, place: float, change: int) -> None:
    key = made_key()
    altered = bytearray(base64.urlsafe_b64decode(encrypt(data, key)))
    altered[int(place * len(altered))] ^= change
    with pytest.raises(EngineFailed, match=KEY):
        decrypt(base64.urlsafe_b64encode(altered).decode(), key)


@pytest.mark.parametrize("word", ["", "~", "0000", "x" * 200])
def test_a_word_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(EngineFailed, match=KEY):
        decrypt(word, made_key())
