"""Docs, messages, docstrings and comments do not personify programs, and name the subject of each sentence."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

REFUSED = ("nobody", "somebody", "whoever", "everybody", "tell", "tells", "told", "let", "lets", "hear", "hears", "heard")
"""Words that make a person of a program, or leave out which program is meant."""

HOLDER = '"nobody"'
"""The value of `holder` in the event StandingBy where no process leads."""

_WORD = re.compile(rf"(?<!\.)\b({'|'.join(REFUSED)})\b", re.IGNORECASE)


def listed(*patterns: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, or the comments and strings of a module."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            yield from enumerate(token.string.splitlines(), token.start[0])


@pytest.mark.parametrize("name", listed("src/*.py", "src/*.md", "docs/*.md", "README.md"))
def test_no_sentence_makes_a_person_of_a_program(name: str) -> None:
    assert [f"{name}:{line}: {text.strip()}" for line, text in prose_of(ROOT / name) if text != HOLDER and _WORD.search(text)] == []
