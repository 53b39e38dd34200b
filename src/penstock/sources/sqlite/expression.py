"""Regular expressions for whole names, matched in a time that no expression makes exponential.

`re` tries one way after the other, and `(a+)+` has 2^n of them. Here each part of an expression maps the set of places before it to
the set of places after it. `re` parses and compares characters: the meaning of an expression is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alternatives."""

    options: Sequence[Sequence[Part]]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """A part from `least` to `most` times."""

    least: int
    most: int
    body: Sequence[Part]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A look-ahead; with a width, a look-behind."""

    body: Sequence[Part]
    width: int
    is_wanted: bool


Part = re.Pattern[str] | Choice | Repeat | Look  # a pattern of single characters and conditions, which matches in one way at most


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A compiled regular expression."""

    parts: Sequence[Part]

    def fits(self, name: str) -> bool:
        """Whether it matches the whole name."""
        return len(name) in _Matching(name).through(self.parts, frozenset({0}))


@lru_cache(maxsize=64)
def expression(text: str) -> Expression:
    """Compile an expression. Raises TooHard, and the errors of `re.compile`."""
    re.compile(text)
    parsed = _parser.parse(text)
    return Expression(_parts(parsed, parsed.state.flags, 0))


def _parts(parsed: Iterable[Any], flags: int, depth: int) -> Sequence[Part]:
    if depth > _DEEPEST:
        raise TooHard(f"it is nested more than {_DEEPEST} deep")
    found: list[Part] = []
    for is_plain, nodes in groupby(parsed, key=lambda node: str(node[0]) in _PLAIN):
        same = [*nodes]
        found += [_leaf(same, flags)] if is_plain else [_part(str(kind), details, flags, depth + 1) for kind, details in same]
    return found


def _part(kind: str, details: Any, flags: int, depth: int) -> Part:
    if kind == "SUBPATTERN":
        _, added, removed, body = details
        return Choice([_parts(body, _combined(flags, added, removed), depth)])
    if kind == "BRANCH":
        return Choice([_parts(option, flags, depth) for option in details[1]])
    if kind in _REPEATS:
        least, most, body = details
        return Repeat(least, most, _parts(body, flags, depth))
    if kind in _LOOKS:
        direction, body = details
        return Look(_parts(body, flags, depth), body.getwidth()[0] if direction < 0 else 0, kind == "ASSERT")
    if kind == "FAILURE":
        return Choice([])
    raise TooHard(f"{kind.lower().replace('_', ' ')}: references to groups, atomic groups and possessive repeats are not supported")


def _combined(flags: int, added: int, removed: int) -> int:
    """The flags of a group; ASCII and UNICODE replace each other, as in `re`."""
    kept = flags & ~_parser.TYPE_FLAGS if added & _parser.TYPE_FLAGS else flags
    return int(kept | added) & ~removed


def _leaf(nodes: list[Any], flags: int) -> re.Pattern[str]:
    state = _parser.State()
    state.flags, state.str = flags, ""
    pattern: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, nodes), flags)
    return pattern


@dataclass(slots=True)
class _Matching:
    """The match of one name, with a cache of the places after each part."""

    name: str
    known: dict[tuple[int, Places], Places] = field(default_factory=dict)

    def through(self, parts: Sequence[Part], at: Places) -> Places:
        """The places after a sequence of parts."""
        for part in parts:
            if not at:
                break
            at = self._after(part, at)
        return at

    def _after(self, part: Part, at: Places) -> Places:
        if isinstance(part, re.Pattern):
            return frozenset(match.end() for place in at if (match := part.match(self.name, place)))
        if isinstance(part, Look):
            return frozenset(place for place in at if self._sees(part, place) is part.is_wanted)
        if (id(part), at) not in self.known:
            if isinstance(part, Repeat):
                self.known[id(part), at] = self._repeated(part, at)
            else:
                self.known[id(part), at] = frozenset().union(*(self.through(option, at) for option in part.options))
        return self.known[id(part), at]

    def _sees(self, part: Look, place: int) -> bool:
        if not part.width:
            return bool(self.through(part.body, frozenset({place})))
        return place >= part.width and place in self.through(part.body, frozenset({place - part.width}))

    def _repeated(self, part: Repeat, at: Places) -> Places:
        """The places after the least number of times, then after further ones, until no new place is found."""
        turns = 0
        while turns < part.least and at:
            before, at, turns = at, self.through(part.body, at), turns + 1
            if at == before:
                break  # further repeats change nothing
        seen, fresh, turns = set(at), at, part.least
        while turns < part.most and fresh:
            fresh = self.through(part.body, fresh) - seen
            seen |= fresh
            turns += 1
        return frozenset(seen)
