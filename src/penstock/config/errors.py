"""The errors of a part of a pipeline file, as texts that name the key and the remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from penstock.config.document import Key

_EXPECTED = {
    "string_type": "text: put it in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "keys and values below it",
    "mapping_type": "keys and values below it",
    "dataclass_type": "keys and values below it",
    "list_type": "a list",
}
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def complaints(part: type, errors: Sequence[Mapping[str, Any]], inside: Key = ()) -> dict[Key, str]:
    """The errors of pydantic for this class, with each key once."""
    found: dict[Key, list[str]] = {}
    for error in errors:
        key = _key(part, error["loc"])
        said = _refusals(part, key, error) if error["type"] == "value_error" else [(key, _phrase(part, key, error))]
        for about, phrase in said:
            found.setdefault((*inside, *about), []).append(phrase)
    return {key: _joined(phrases) for key, phrases in found.items()}


def unknown(name: str, allowed: Sequence[str]) -> str:
    """The complaint about an unknown word."""
    close = get_close_matches(name, allowed, 1)
    return f"is unknown: did you mean {close[0]}?" if close else f"is unknown: {one_of(allowed)}"


def one_of(words: Sequence[str]) -> str:
    """The list of allowed words."""
    return "allowed is " + ", ".join(words) if words else "no key is allowed here"


def parts(part: type) -> list[str]:
    """The keys of this class that contain other keys."""
    return [name for name, kind in get_type_hints(part).items() if dataclasses.is_dataclass(kind)]


def keys(part: type, inside: Key = ()) -> Iterator[Key]:
    """Every key of this class, including nested keys."""
    for name, kind in get_type_hints(part).items():
        if dataclasses.is_dataclass(kind):
            yield from keys(kind, (*inside, name))  # type: ignore[arg-type]
        else:
            yield (*inside, name)


def _phrase(part: type, key: Key, error: Mapping[str, Any]) -> str:
    kind = error["type"]
    if kind in _UNKNOWN:
        return unknown(key[-1], list(get_type_hints(_at(part, key[:-1]))))
    if kind == "missing":
        return "is missing"
    if error["input"] is None:
        return "is empty: give it a value, or remove the key"
    if kind == "literal_error":
        return f"must be {error['ctx']['expected']}".replace("'", "")
    return f"must be {_EXPECTED.get(kind, error['msg'].lower())}"


def _refusals(part: type, key: Key, error: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """The complaints of the class itself: one per line, each about the key at the start of the line if it has one."""
    for line in str(error["ctx"]["error"]).split("\n"):
        name, _, rest = line.partition(" ")
        named = tuple(name.rstrip(":").split("."))
        is_key = named[0] in get_type_hints(part) and len(named) <= len(key) + 2
        yield (named, f": {rest}" if name.endswith(":") else rest) if is_key else (key, f": {line}")


def _joined(phrases: Sequence[str]) -> str:
    first, *others = dict.fromkeys(phrases)
    return " or ".join([first, *(phrase.removeprefix("must be ") for phrase in others)])


def _key(part: Any, place: Sequence[str | int]) -> Key:
    """The key of a location, without the branches of unions, which pydantic adds."""
    key: list[str] = []
    for name in map(str, place):
        if not (dataclasses.is_dataclass(part) or _is_mapping(part)):
            break
        key.append(name)
        part = get_type_hints(part).get(name) if dataclasses.is_dataclass(part) else None
    return tuple(key)


def _at(part: Any, key: Key) -> Any:
    for name in key:
        part = get_type_hints(part)[name]
    return part


def _is_mapping(kind: Any) -> bool:
    return any(getattr(one, "__origin__", None) is Mapping for one in (kind, *get_args(kind)))
