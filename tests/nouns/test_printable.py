"""Text from elsewhere on a terminal: what could steer it, or looks like something else, is shown by its code."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.text.printable import as_json, printable

HIDING = (
    "\u00ad\u034f\u061c\u115f\u180e\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069"
    "\u3164\ufe0f\ufeff\uffa0\U000e0041"
)
"""Some of those that show nothing, or move what is beside them."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("a\x7fb", r"a\x7fb"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("ord\u200bers", r"ord\u200bers"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_a_terminal_or_hides_is_shown_by_its_code(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text", ["", "orders", "Grüße", "東京 の\u3000注文", "עברית", "العربية", "हिन्दी", "10\u00a0€", "🎉 e\u0301", r"C:\x1b"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("character", HIDING)
def test_each_of_those_that_hide_is_shown(character: str) -> None:
    assert printable(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"


@settings(max_examples=examples(1000), deadline=None)
@given(st.text(st.characters() | st.sampled_from(HIDING + "\x00\x07\x1b\n\x7f\x80\x85\x9b\x9f\ud800")))
@example("\x1b[31m")
def test_nothing_is_left_that_steers_and_nothing_else_is_changed(text: str) -> None:
    shown = printable(text)
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") or one in HIDING]
    assert printable(shown) == shown
    left = iter(shown)
    assert all(one in left for one in text if one.isascii() and one.isprintable()), "what is ordinary stays, in order"
    shown.encode()


@settings(max_examples=examples(300), deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
    )
)
@example({"\x7f": ["\x7f\x1b\x9b\u202e\n"]})
def test_json_says_the_same_in_characters_that_print(value: object) -> None:
    told = as_json(value)
    assert told.isascii()
    assert told.isprintable()
    assert json.loads(told) == value
