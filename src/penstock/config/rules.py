"""The rules on more than one key. They start and import nothing."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

from penstock import registry
from penstock.config.document import Document, Key
from penstock.config.errors import unknown
from penstock.config.parts import path, scheme, state_kind
from penstock.pipeline import Transform

_LEAST_TERM = timedelta(seconds=5)  # a barrier resets records after 4 s, before the end of a term
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def contradictions(given: Document, file: Any, source: Any, sink: Any) -> dict[Key, str]:
    """All complaints; `source` and `sink` are None if they are invalid."""
    found: dict[Key, str] = {}
    if not _NAME.fullmatch(file.name):
        found[("name",)] = f"{file.name!r} must be 1 to 64 letters, digits or _ . -"
    if file.spark.memory is not None and "spark.driver.memory" in file.spark.config:
        found["spark", "memory"] = "and spark.config.spark.driver.memory exclude each other: remove the latter"
    if source is not None and sink is not None:
        found |= sink.conflicts(source, has_function=file.transform.function is not None)
    return found | _of_transform(file.transform) | _of_state(given, file.state, source) | _of_term(file)


def _of_transform(transform: Transform) -> dict[Key, str]:
    found: dict[Key, str] = {}
    if transform.where is not None and not transform.where.strip():
        found["transform", "where"] = "is empty: write a condition, or remove the key"
    if transform.select is not None and not transform.select:
        found["transform", "select"] = "is empty: name a field and its expression, or remove the key"
    for name, expression in (transform.select or {}).items():
        if not expression.strip():
            found["transform", "select", name] = "is empty: write an expression, or remove the field"
    if transform.function is not None and not _FUNCTION.fullmatch(transform.function):
        found["transform", "function"] = f"{transform.function!r} must be module:name, such as shop.rules:enrich"
    return found


def _of_state(given: Document, state: str, source: Any) -> dict[Key, str]:
    if scheme(state):
        said = f"{scheme(state)}:// {unknown(scheme(state), list(registry.schemes()))}, or the path of a file"
        return {} if state_kind(state) else {("state",): said}
    place = path(given, state)
    if os.path.isdir(place):
        return {("state",): f"{state} is a folder: name a file in it, such as {state.rstrip('/')}/penstock.db"}
    found = registry.kind_of(source, registry.sources())
    if found and os.path.realpath(place) in map(os.path.realpath, registry.files_of(source, found[1])):
        return {("state",): "is the database of the source: name another file"}
    return {}


def _of_term(file: Any) -> dict[Key, str]:
    if file.term is None:
        return {}
    if (kind := state_kind(file.state)) and kind.term:
        return {("term",): kind.term}
    return {} if file.term >= _LEAST_TERM else {("term",): f"must be {_LEAST_TERM.total_seconds():.0f}s or longer"}
