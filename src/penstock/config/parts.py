"""The source, the sink and the state store of a file, by the descriptors of their kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pydantic import TypeAdapter, ValidationError

from penstock import registry
from penstock.config.document import NO_HOME, Document, Key
from penstock.config.errors import complaints, one_of, parts, unknown
from penstock.errors import ConfigInvalid
from penstock.kind import Kind, StateKind


def kinds(part: str) -> Mapping[str, Kind]:
    """The kinds of sources or of sinks."""
    return registry.sources() if part == "source" else registry.sinks()


def part_of(given: Document, name: str, found: dict[Key, str]) -> Any:
    """The source or the sink; None if invalid, with complaints added to `found`."""
    values = given.values.get(name)
    if not isinstance(values, Mapping):
        return None
    known, wanted = kinds(name), values.get("type")
    if not isinstance(wanted, str) or wanted not in known:
        names = list(known)
        found[name, "type"] = f"is missing: {one_of(names)}" if wanted is None else f"{wanted} {unknown(str(wanted), names)}"
        return None
    kind, rest = known[wanted], {key: value for key, value in values.items() if key != "type"}
    return validated(resolve_name(kind.chosen(rest)), _located(given, kind, rest), (name,), found)


def validated(part: type[Any], values: Mapping[str, Any], inside: Key, found: dict[Key, str]) -> Any:
    """A part with these values; None if invalid, with complaints added to `found`."""
    try:
        # As JSON: in strict mode, pydantic accepts mappings for nested classes only from JSON.
        return _adapter(part).validate_json(json.dumps(values, default=str))  # type: ignore[arg-type]
    except ValidationError as error:
        found |= complaints(part, error.errors(), inside)
        failed = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
        if failed and failed <= set(parts(part)):  # pydantic has not checked the other keys yet
            validated(part, {key: value for key, value in values.items() if key not in failed}, inside, found)
        return None


@cache
def _adapter(part: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(part)


def _located(given: Document, kind: Kind, values: Mapping[str, Any], inside: Key = ()) -> dict[str, Any]:
    """These values, with paths relative to the folder of the file."""
    words = {file.key: file.words for file in kind.files}
    moved = dict(values)
    for name, value in values.items():
        key = (*inside, name)
        if isinstance(value, Mapping):
            moved[name] = _located(given, kind, value, key)
        elif key in words and isinstance(value, str) and value not in words[key]:
            moved[name] = path(given, value)
    return moved


def path(given: Document, text: str) -> str:
    """A path relative to the folder of the file; an address stays as it is."""
    if "\0" in text:
        raise ConfigInvalid(f"{given.name}: the path {text!r} contains a NUL", "remove it")
    try:
        return text if "://" in text else str(given.folder / Path(text).expanduser())
    except RuntimeError as error:
        raise ConfigInvalid(f"{given.name}: {text}: {NO_HOME}", "correct the path") from error


def scheme(state: str) -> str:
    """The text before `://`; empty for a path."""
    return state.partition("://")[0] if "://" in state else ""


def state_kind(state: str) -> StateKind | None:
    """The kind of the store at this address; None for an unknown scheme."""
    return next((kind for kind in registry.states().values() if scheme(state) in (kind.schemes or ("",))), None)


def coordinator(given: Document, state: str, term: timedelta | None) -> Any:
    """The state store at this address."""
    kind = state_kind(state)
    assert kind, state
    try:
        made = resolve_name(kind.settings)
    except ImportError as error:
        needs = f"{given.where(('state',))} needs a package that is not installed: {error}"
        raise ConfigInvalid(f"{given.name}: {needs}", f"pip install 'penstock[{kind.extra}]'") from error
    try:
        return made(path(given, state), **({"ttl": term.total_seconds()} if term else {}))
    except ConfigInvalid:
        if "${file:" not in (text := given.written.get(("state",), "")):
            raise
        raise invalid(given, {("state",): f"cannot have the value of {text}"}) from None


def invalid(given: Document, found: Mapping[Key, str]) -> ConfigInvalid:
    """The error with all complaints, in the order of the file."""
    lines = [
        f"{given.where(key)} {said}".replace(" : ", ": ")
        for key, said in sorted(found.items(), key=lambda item: given.line(item[0]))
    ]
    remedy = "correct the key" if len(lines) == 1 else f"correct these {len(lines)} keys"
    return ConfigInvalid(f"{given.name}: " + "; ".join(lines), f"{remedy}; docs/pipeline-file.md lists all keys")


def value_at(values: Mapping[str, Any], key: Key) -> Any:
    """The value of a key; None if it is missing."""
    value: Any = values
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
