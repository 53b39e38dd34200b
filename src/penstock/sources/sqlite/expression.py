"""Regular expressions for whole names, matched in a time that no expression makes exponential.

`re` tries one way after the other, and `(a+)+` has 2^n of them. Here each part of an expression maps the set of places before it to
the set of places after it. `re` parses and compares characters: the meaning of an expression is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any

_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")
_PLAIN = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "CATEGORY", "AT"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_LOOKS = frozenset({"ASSERT", "ASSERT_NOT"})
_DEEPEST = 50

Places = frozenset[int]


class TooHard(ValueError):
    """An expression that cannot be matched like this."""


@dataclass(frozen=True, slots=True)
class _Name:
    """The name to match, with a cache of the places after each part."""

    text: str
    known: dict[tuple[Part, Places], Places] = field(default_factory=dict)


Part = Callable[[_Name, Places], Places]


@lru_cache(maxsize=64)
def expression(text: str) -> Callable[[str], bool]:
    """A function that matches whole names. Raises TooHard, and the errors of `re.compile`."""
    re.compile(text)
    parsed = _parser.parse(text)
    part = _sequence(parsed, parsed.state.flags, 0)
    return lambda name: len(name) in part(_Name(name), frozenset({0}))


def _sequence(parsed: Iterable[Any], flags: int, depth: int) -> Part:
    if depth > _DEEPEST:
        raise TooHard(f"it is nested more than {_DEEPEST} deep")
    parts: list[Part] = []
    for is_plain, nodes in groupby(parsed, key=lambda node: str(node[0]) in _PLAIN):
        same = [*nodes]
        parts += (
            [_leaf(same, flags)] if is_plain else [_cached(_part(str(kind), details, flags, depth + 1)) for kind, details in same]
        )

    def after(name: _Name, at: Places) -> Places:
        for part in parts:
            if not at:
                break
            at = part(name, at)
        return at

    return after


def _part(kind: str, details: Any, flags: int, depth: int) -> Part:
    if kind == "SUBPATTERN":
        _, added, removed, body = details
        return _sequence(body, _combined(flags, added, removed), depth)
    if kind == "BRANCH":
        return _choice([_sequence(option, flags, depth) for option in details[1]])
    if kind in _REPEATS:
        least, most, body = details
        return _repeat(_sequence(body, flags, depth), least, most)
    if kind in _LOOKS:
        direction, body = details
        return _look(_sequence(body, flags, depth), body.getwidth()[0] if direction < 0 else 0, kind == "ASSERT")
    if kind == "FAILURE":
        return _choice([])
    raise TooHard(f"{kind.lower().replace('_', ' ')}: references to groups, atomic groups and possessive repeats are not supported")


def _combined(flags: int, added: int, removed: int) -> int:
    """The flags of a group; ASCII and UNICODE replace each other, as in `re`."""
    kept = flags & ~_parser.TYPE_FLAGS if added & _parser.TYPE_FLAGS else flags
    return int(kept | added) & ~removed


def _leaf(nodes: list[Any], flags: int) -> Part:
    """Single characters and conditions, which match in one way at most."""
    state = _parser.State()
    state.flags, state.str = flags, ""
    pattern: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, nodes), flags)
    return lambda name, at: frozenset(match.end() for place in at if (match := pattern.match(name.text, place)))


def _cached(part: Part) -> Part:
    def after(name: _Name, at: Places) -> Places:
        if (part, at) not in name.known:
            name.known[part, at] = part(name, at)
        return name.known[part, at]

    return after


def _choice(options: list[Part]) -> Part:
    return lambda name, at: frozenset().union(*(option(name, at) for option in options))


def _look(body: Part, width: int, is_wanted: bool) -> Part:
    """A look-ahead; with a width, a look-behind."""

    def sees(name: _Name, place: int) -> bool:
        ends = body(name, frozenset({place - width})) if place >= width else frozenset()
        return place in ends if width else bool(ends)

    return lambda name, at: frozenset(place for place in at if sees(name, place) is is_wanted)


def _repeat(body: Part, least: int, most: int) -> Part:
    def after(name: _Name, at: Places) -> Places:
        """The places after the least number of times, then after further ones, until no new place is found."""
        turns = 0
        while turns < least and at:
            before, at, turns = at, body(name, at), turns + 1
            if at == before:
                break  # further repeats change nothing
        seen, fresh, turns = set(at), at, least
        while turns < most and fresh:
            fresh = body(name, fresh) - seen
            seen |= fresh
            turns += 1
        return frozenset(seen)

    return after
