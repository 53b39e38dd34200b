"""Expressions for names of tables and columns: they mean the same as in `re`, and none takes forever."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.errors import ConfigInvalid
from penstock.sources.sqlite.expression import expression
from penstock.sources.sqlite.schema import matcher

HOSTILE = [
    "(a+)+$",
    "(a|a)*b",
    "(a|[ab])*$",
    "(.*a){12}",
    "(a?){40}a{40}",
    "(((((((((a*)*)*)*)*)*)*)*)*)*b",
    "(a|aa)+",
    "(?=(a+)+$)a*",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["a" * 200 + "!", "a" * 5000 + "!"], ids=["long", "longer"])
def test_an_expression_that_backtracks_without_end_answers(text: str, name: str) -> None:
    assert matcher("tables", text)(name) is False


ATOMS = [
    "a",
    "b",
    "é",
    ".",
    "[ab]",
    "[^a]",
    r"\w",
    r"\W",
    r"\d",
    r"\b",
    "^",
    "$",
    r"\Z",
    "(?i:A)",
    "(?s:.)",
    r"(?a:\w)",
    r"(?u:\w)",
    r"(?a:\W(?u:\w))",
    r"(?u:\w(?ai:É))",
    "É",
    "_",
    "(?=a)",
    "(?!b)",
    "(?<=a)",
]
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: f"({'|'.join(found)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])).map(
            lambda found: f"(?:{found[0]}){found[1]}"
        ),
        inner.map(lambda found: f"(?!{found})"),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(300))
@given(text=PATTERNS, flags=st.sampled_from(["", "(?i)", "(?s)", "(?a)", "(?m)", "(?x)"]), name=st.text("abAé_1\n ", max_size=5))
def test_an_expression_means_what_it_means_to_python(text: str, flags: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert expression(flags + text)(name) is (re.fullmatch(flags + text, name) is not None)


@pytest.mark.parametrize(
    "text", [r"(?a:\w+)", r"(?u:\w+)", r"(?a:\w*(?u:\w)\w*)", r"(?a:[^\W_]+)", r"(?ai:É)", r"(?a:\bé\b)", r"(?-i:É)"]
)
@pytest.mark.parametrize("flags", ["", "(?a)", "(?i)", "(?u)", "(?ai)"])
def test_a_group_of_ascii_or_of_unicode_matches_the_same_names_as_in_python(text: str, flags: str) -> None:
    names = ["a", "é", "éa", "É", "1", "_"]
    fits = matcher("tables", flags + text)
    assert [*filter(fits, names)] == [name for name in names if re.fullmatch(flags + text, name)]


@pytest.mark.parametrize("text", [r"(?L:\w)", r"(?L)\w", r"(?au:\w)"])
def test_flags_that_python_refuses_are_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="tables") as refused:
        matcher("tables", text)
    assert refused.value.remedy


@pytest.mark.parametrize("text", [r"(a)\1", "(?P<x>a)(?P=x)", "(a)?(?(1)b|c)", "(?>a+)", "a++", "(" * 60 + "a" + ")" * 60])
def test_what_cannot_be_matched_so_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="tables") as refused:
        matcher("tables", text)
    assert refused.value.remedy
