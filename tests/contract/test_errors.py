"""What every error must keep true: it crosses processes as a pickle, and Spark as text."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Directive, PenstockError, from_text, kinds

KINDS = list(kinds())
TEXT = (st.text() | st.text("ab |[].:\n")).map(lambda text: " ".join(text.split()))


def same(one: PenstockError | None, other: PenstockError) -> bool:
    return one is not None and (type(one), one.message, one.remedy) == (type(other), other.message, other.remedy)


@pytest.mark.parametrize("kind", KINDS)
def test_it_pickles(kind: type[PenstockError]) -> None:
    for error in (kind("what happened"), kind("what happened", "what to do")):
        assert same(pickle.loads(pickle.dumps(error)), error)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_recognised_in_a_workers_traceback(kind: type[PenstockError]) -> None:
    error = kind("position 7 [of 9]: 'x' | y", "do: this")
    traceback = f"Traceback:\npenstock.errors.{kind.__name__}: {error}"
    assert same(from_text(f"org.apache.spark.SparkException: Job aborted\n  at java.lang\n{traceback}\n\tat x"), error)


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_a_code_of_its_own_a_meaning_and_a_directive(kind: type[PenstockError]) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z-]+", kind.code)
    assert [other for other in KINDS if other.code == kind.code] == [kind]
    assert kind.__doc__
    assert isinstance(kind.directive, Directive)
    assert kind("what happened").facts() == {"code": kind.code, "message": "what happened", "remedy": kind.remedy}


@given(kind=st.sampled_from(KINDS), message=TEXT, remedy=TEXT)
def test_any_words_survive_pickling(kind: type[PenstockError], message: str, remedy: str) -> None:
    error = kind(message, remedy)
    assert same(pickle.loads(pickle.dumps(error)), error)


@given(kind=st.sampled_from(KINDS), message=TEXT.filter(bool), remedy=TEXT)
def test_any_words_survive_as_text(kind: type[PenstockError], message: str, remedy: str) -> None:
    error = kind(message, remedy)
    assert same(from_text(f"before\n{error}\nbehind"), error)


def test_text_without_an_error_of_ours_gives_none() -> None:
    assert from_text("java.lang.NullPointerException: [x] y\n[no.such] thing") is None
